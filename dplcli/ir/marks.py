"""Keys of metadata by which dpl knows again what it wrote, and from what.

Models are exchanged as files, so these are a format: other modules, and other tools, read them.
"""

RULE_KEY = "dpl.rule"
"""Of a node that a rule has made: the rule's name."""

ORIGIN_KEY = "dpl.replaces"
"""Of a node that a rule has made: the names of the nodes it was made from."""

NODES_KEY = "dpl.nodes"
"""Of a call: the nodes it stands for (:func:`dplcli.passes.origin.describe_nodes`)."""
