"""What a backend needs beyond a catalogue: the contract that its kernels have to keep."""

from dplcli.targets.contract import (
    AttributeContract,
    BodyNode,
    Contract,
    FunctionContract,
    Parts,
    PortContract,
    contract_of,
    with_parts,
)
