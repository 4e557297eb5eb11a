"""Prints tables of results with `lm_eval.utils.make_table`: with lm-eval 0.4.13 on the path it made tests/lm_eval_files/tables.txt."""

from lm_eval.utils import make_table


def show(values, versions=None, shots=None):
    rows = {
        f"t{place}": {"alias": f"t{place}", "acc,none": value, "acc_stderr,none": error}
        for place, (value, error) in enumerate(values)
    }
    about = {
        "versions": versions or dict.fromkeys(rows, 1.0),
        "n-shot": shots or dict.fromkeys(rows, 0),
        "higher_is_better": {},
    }
    print(make_table({"results": rows, **about}))


NAN = float("nan")
show([(0.5, 0.25)])
show([(0.0, 0.0)])
show([(0.5, "N/A"), (1.0, "N/A")])
show([(0.5, 0.0), (0.25, 0.125)])
show([(12.3456789, 0.1), (0.5, 0.2)])
show([(0.5, 0.1)], versions={"other": 1})
show([(0.5, 0.1), (1.0, 0.2)], versions={"t0": 1.0}, shots={"t0": 5})
show([(1.0, 0.0), (0.0, 0.0)])
show([(1, 0.0), (0.25, 0.1)])
show([(0.5, 0.1), (0.25, 0.3)], versions={"t0": 1.5, "t1": 2})
show([(NAN, 0.1), (0.25, 0.3)])
show([(123456.5, 0.1), (0.25, 0.3)])
show([("lol", 0.1), (0.25, 0.3)])
