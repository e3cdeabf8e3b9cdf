#!/bin/sh
# sites.sh [FOLDER]: writes the call forms of the public functions, from the declarations marked TN_API in
# the public headers: sites.h and models_sites.h, into include/tenon or another folder. `make sites` runs it
# after a declaration has changed; a test says when that was forgotten.
set -eu
cd "$(dirname "$0")/.."
to=${1:-include/tenon}

# A row says all that is in a declaration, and a macro stands for a call.
forms() {
    cat <<'END'
// Made by `make sites` from the declarations of the public headers that are marked TN_API; not to be edited.
//
// A row for each function. What it is is said by whoever includes this; else it declares the form that takes
// the place of the call, tn_add_at(file, line, a, b).
//
//   TN_OP(name, parameters, arguments)            returns a tensor; what else it made is gone then
//   TN_CALL(result, name, parameters, arguments)  returns something else
//   TN_DO(name, parameters, arguments)            returns nothing
//
// Then a macro for each. It names its arguments where none can have a comma of its own, as a shape or
// options written in place have: the compiler can then say how many the function takes.
// clang-format off
#ifndef TN_OP
#define TN_OP(name, params, args)           TN_FORM(tn_tensor *, name, params)
#define TN_CALL(result, name, params, args) TN_FORM(result, name, params)
#define TN_DO(name, params, args)           TN_FORM(void, name, params)
#endif
END
    awk '
    # The arguments of a call, "x, axis". comma: whether one may have a comma of its own, as all may whose
    # type is no number, no text, and nothing that a function of ours returned.
    function split_parameters(text,    i, c, depth, one, n, number, ours) {
        number = "^(int|int64_t|uint64_t|size_t|float|double|bool|tn_dtype|tn_status) [a-z0-9_]+$"
        ours = "^(const )?(char|FILE|tn_(ctx|scope|tensor|layer|optim|data|bpe|file)) [*][a-z0-9_]+$"
        arguments = ""; comma = 0; depth = 0; one = ""
        text = text ","
        for (i = 1; i <= length(text); i++) {
            c = substr(text, i, 1)
            if (c == "(") depth++
            if (c == ")") depth--
            if (c != "," || depth) { one = one c; continue }
            sub(/^ +/, "", one)
            if (one !~ number && one !~ ours) comma = 1
            if (match(one, /\([*][a-z0-9_]+\)/)) one = substr(one, RSTART + 2, RLENGTH - 3)
            else { match(one, /[a-z0-9_]+$/); one = substr(one, RSTART) }
            arguments = arguments (arguments == "" ? "" : ", ") one
            one = ""
        }
    }
    # A declaration without its mark and semicolon, "tn_tensor *tn_relu(tn_tensor *x)".
    function declared(text,    result, name, parameters) {
        match(text, /tn_[a-z0-9_]+\(/)
        result = substr(text, 1, RSTART - 1)
        name = substr(text, RSTART, RLENGTH - 1)
        parameters = substr(text, RSTART + RLENGTH)
        sub(/\)$/, "", parameters)
        sub(/ $/, "", result)
        split_parameters(parameters)
        parameters = name ", (" parameters "), (" arguments "))"
        if (result == "tn_tensor *") print "TN_OP(" parameters
        else if (result == "void") print "TN_DO(" parameters
        else print "TN_CALL(" result ", " parameters
        if (comma) macros = macros "#define " name "(...) " name "_at(TN_HERE, __VA_ARGS__)\n"
        else macros = macros "#define " name "(" arguments ") " name "_at(TN_HERE, " arguments ")\n"
    }
    /^TN_API_PLAIN tn_tensor [*]/ {
        print FILENAME ": a function that returns a tensor is marked TN_API: " $0 > "/dev/stderr"
        failed = 1
    }
    # A macro that declares a family: its lines, then its uses.
    /^#define TN_REDUCTION/ { members = 0 }
    /^ +TN_API .*##name/ {
        sub(/^ +TN_API /, "")
        sub(/;.*/, "")
        member[++members] = $0
    }
    /^TN_REDUCTION/ {
        split($0, part, /[()]/)
        for (i = 1; i <= members; i++) {
            text = member[i]
            gsub(/##name(##)?/, part[2], text)
            declared(text)
        }
    }
    /^TN_API / { text = "" }
    /^TN_API /, /;/ {
        line = $0
        sub(/ *\/\/.*/, "", line)
        gsub(/^TN_API +|^ +/, "", line)
        text = text (text == "" ? "" : " ") line
        if (!sub(/;$/, "", text)) next
        gsub(/  +/, " ", text)
        declared(text)
    }
    END {
        print "#undef TN_OP\n#undef TN_CALL\n#undef TN_DO\n\n#ifndef TN_PLAIN\n" macros "#endif"
        exit failed
    }' "$@"
}

forms include/tenon.h include/tenon/layers.h include/tenon/training.h > "$to/sites.h.new"
forms include/tenon/models.h > "$to/models_sites.h.new"
mv "$to/sites.h.new" "$to/sites.h"
mv "$to/models_sites.h.new" "$to/models_sites.h"
