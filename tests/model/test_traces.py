"""The golden traces of all variants, each of which tests/model/test_variants.py compares: what a piece computes changes
only together with its `version`.

The version is part of a run's identity, so runs from before a fix and after it are never taken for each other.
`pytest tests/model/test_traces.py --golden` writes those that are new or of another version, and
refuses what changed under the same one.
"""

from __future__ import annotations

import json

from tests.model.test_variants import EVERY, GOLDEN, TRACES, assert_same, build, case_name, trace


def test_every_variant_has_a_trace_and_one_of_the_same_versions_is_not_written_anew(request):
    first = {change: family for family, change in reversed(EVERY)}
    traced = {case_name(case): case for case in EVERY if case_name(case) in TRACES or first[case[1]] == case[0]}
    if request.config.getoption("--golden"):  # machines differ in the last digit: what is still true stands as it is
        found = {name: trace(build(*case).double(), case) for name, case in traced.items()}
        kept = {n: TRACES[n] for n in TRACES.keys() & found if TRACES[n].get("versions") == found[n]["versions"]}
        for name, stored in kept.items():
            assert_same(stored, found[name])
        GOLDEN.write_text(json.dumps(found | kept, indent=1, sort_keys=True) + "\n")
        return
    assert TRACES.keys() == traced.keys(), "write the traces of new variants: --golden"
