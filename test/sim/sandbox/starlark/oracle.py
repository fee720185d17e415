"""Runs Starlark programs with starlark-pyo3, an implementation by other authors.

Reads a JSON list of programs. Writes a JSON list of what repr(main()) gives, None for a program that fails.
"""

import json
import sys

import starlark

dialect = starlark.Dialect.extended()
globals_ = starlark.Globals.standard()


def run(source):
    try:
        module = starlark.Module()
        starlark.eval(module, starlark.parse("program.star", source + "\nresult = repr(main())\n", dialect), globals_)
        return module["result"]
    except starlark.StarlarkError:
        return None


json.dump([run(source) for source in json.load(sys.stdin)], sys.stdout)
