"""Programs that the scripted proposers of these tests write."""

import re


def program(weight, remark=""):
    return (
        "# EVOLVE-BLOCK-START\n"
        f"WEIGHT = {weight:.3f}  # {remark}\n"
        "def rate(instance):\n"
        "    return (1.0 - WEIGHT) * instance.prefixAffinity + WEIGHT / (1.0 + instance.inFlight)\n"
        "# EVOLVE-BLOCK-END\n\n"
        "def score(request, cluster, instances):\n"
        "    return [rate(instance) for instance in instances]\n"
    )


def weight_of(text):
    """The last weight that the text mentions."""
    found = re.findall(r"WEIGHT = ([0-9.]+)", text)
    return float(found[-1]) if found else 0.1
