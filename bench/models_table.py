"""Puts Tenon's models on a GPU beside PyTorch's.

    models_table.py KIND PEERS.json FILES NAME COMMIT OURS.json [LABEL OURS.json ...]

writes NAME.md and NAME.json. The first OURS.json is of a run with the cuDNN file that PyTorch has, and OURS.notes has its
notes; each further one is another run of Tenon, named by its label. Profiles in the folder FILES come last. The tables of
a kind are in KIND_table.py: TITLE, PROFILES (parts of names of profiles to show), and tables(runs, cases), which gives
texts, and what is not as wanted.
"""
import datetime
import importlib
import json
import sys

from gpu_table import load, profiles


def rows_of(path):
    """Rows "CASE: WHAT" of a run as {case: {what: value}}."""
    found = {}
    for row in load(path).get("results", []):
        case, _, what = row["what"].rpartition(": ")
        found.setdefault(case, {})[what] = row["value"]
    return found


def notes_of(path):
    try:
        with open(path.removesuffix(".json") + ".notes") as f:
            return [text.rstrip() for text in f if text.strip()]
    except OSError:
        return []


def write(kind, peers_path, files, name, commit, ours, *more):
    peers = load(peers_path)
    runs = {"Tenon": rows_of(ours)}
    for label, path in zip(more[::2], more[1::2]):
        runs[f"Tenon, {label}"] = rows_of(path)
    about = importlib.import_module(kind + "_table")
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    together = ", some of whose figures are those of an earlier run" if peers.get("earlier") else " in one run"
    texts, missed = about.tables(runs, peers.get("cases", {}))
    with open(name + ".md", "w") as f:
        f.write(f"# {about.TITLE} on one {peers.get('gpu', 'GPU')}\n\n{date}, commit {commit}, beside PyTorch "
                f"{peers.get('torch', '-')} (cuDNN {peers.get('cudnn', '-')}){together}.\n")
        for text in texts:
            f.write("\n" + text)
        if missed is not None:
            f.write("\n## Not as wanted\n\n" + ("".join(f"- {m}\n" for m in missed) or "Nothing.\n"))
        notes = notes_of(ours) + peers.get("notes", [])
        if notes:
            f.write("\n## Notes of the run\n\n" + "".join(f"    {n}\n" for n in notes))
        f.write(profiles(files, about.PROFILES))
    with open(name + ".json", "w") as f:
        json.dump({"date": date, "commit": commit, "runs": runs, "peers": peers, "missed": missed}, f, indent=1)
    print(open(name + ".md").read())


if __name__ == "__main__":
    write(*sys.argv[1:])
