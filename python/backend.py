"""Builds the wheel (PEP 517, PEP 660) with cmake and a C compiler, and nothing from an index.

The wheel has the extension module, which contains the library, and the files of python/tenon. One wheel serves
every Python from 3.11 on.
"""
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = "Deep-learning framework and kernel compiler: whole training steps as few kernels"


def version():
    header = (ROOT / "include" / "tenon.h").read_text()
    return ".".join(re.search(rf"TN_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def metadata():
    readme = (ROOT / "docs" / "python.md")
    text = readme.read_text() if readme.exists() else SUMMARY + "\n"
    return (f"Metadata-Version: 2.1\nName: tenon\nVersion: {version()}\nSummary: {SUMMARY}\nRequires-Python: >=3.11\n"
            f"License: MIT\nProvides-Extra: numpy\nRequires-Dist: numpy; extra == 'numpy'\n"
            f"Description-Content-Type: text/markdown\n\n{text}")


def tag():
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"cp311-abi3-{platform}"


def build():
    """Builds the package and returns its folder."""
    for tool in ("cmake", os.environ.get("CC", "cc").split()[0]):
        if not shutil.which(tool):
            sys.exit(f"tenon: {tool} is missing; on Debian or Ubuntu: apt-get install cmake gcc libc6-dev python3-dev")
    folder = ROOT / "build" / "wheel"
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, f"-DPython3_EXECUTABLE={sys.executable}", "--log-level=WARNING"],
                   check=True, stdout=subprocess.DEVNULL)
    targets = subprocess.run(["cmake", "--build", folder, "--target", "help"], check=True, capture_output=True, text=True)
    if "tenon_python" not in targets.stdout:
        sys.exit(f"tenon: Python.h is missing in {sysconfig.get_path('include')}; on Debian or Ubuntu: apt-get install python3-dev")
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count() or 2)
    subprocess.run(["cmake", "--build", folder, "--parallel", jobs, "--target", "tenon_python"], check=True)
    return folder / "python" / "tenon"


class Wheel:
    """A zip file with the record of its content."""

    def __init__(self, folder, name):
        self.name = f"{name}-{tag()}.whl"
        self.info = f"{name}.dist-info"
        self.zip = zipfile.ZipFile(Path(folder) / self.name, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.record = []

    def write(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))  # the same bytes from the same sources
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self):
        self.write(f"{self.info}/METADATA", metadata().encode())
        self.write(f"{self.info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: tenon\nRoot-Is-Purelib: false\nTag: {tag()}\n".encode())
        self.write(f"{self.info}/entry_points.txt", b"[console_scripts]\ntenon = tenon.__main__:main\n")
        self.write(f"{self.info}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes())
        lines = self.record + [f"{self.info}/RECORD,,"]
        self.zip.writestr(f"{self.info}/RECORD", "\n".join(lines) + "\n")
        self.zip.close()
        return self.name


def stripped(path):
    """The module without the symbols that only a debugger wants."""
    strip = shutil.which("strip")
    if not strip:
        return path.read_bytes()
    small = path.with_suffix(".stripped")
    subprocess.run([strip, "-o", small, path], check=True)
    data = small.read_bytes()
    small.unlink()
    return data


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    package = build()
    wheel = Wheel(wheel_directory, f"tenon-{version()}")
    for path in sorted(package.rglob("*")):
        if path.is_dir() or "__pycache__" in path.parts:
            continue
        name = f"tenon/{path.relative_to(package).as_posix()}"
        module = path.name.endswith(".so")
        wheel.write(name, stripped(path) if module else path.read_bytes(), 0o755 if module else 0o644)
    return wheel.close()


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """The sources are used where they are: the module is put beside them."""
    package = build()
    for name in ("_c.abi3.so", "_c.pyi"):
        shutil.copy(package / name, ROOT / "python" / "tenon" / name)
    wheel = Wheel(wheel_directory, f"tenon-{version()}")
    wheel.write("tenon-editable.pth", f"{ROOT / 'python'}\n".encode())
    return wheel.close()


def build_sdist(sdist_directory, config_settings=None):
    name = f"tenon-{version()}"
    keep = ["CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", "include", "src", "models", "cli", "python", "docs"]
    with tarfile.open(Path(sdist_directory) / f"{name}.tar.gz", "w:gz") as tar:
        for part in keep:
            tar.add(ROOT / part, f"{name}/{part}",
                    filter=lambda t: None if t.name.endswith((".so", ".pyi", ".pyc", "__pycache__")) else t)
        info = tarfile.TarInfo(f"{name}/PKG-INFO")
        data = metadata().encode()
        info.size = len(data)
        import io
        tar.addfile(info, io.BytesIO(data))
    return f"{name}.tar.gz"
