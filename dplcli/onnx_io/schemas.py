"""The standard's operator schemas, read from the installed onnx package when asked for."""

from collections.abc import Iterable

import onnx
from onnx.defs import OpSchema as OnnxSchema

from dplcli.ir import Attribute, OpSchema
from dplcli.onnx_io.attributes import decode_attribute

_VARIADIC = 2**31 - 1
_INDEX_TYPES = {"tensor(int64)", "tensor(int32)"}


class OnnxSchemas:
    """A :class:`dplcli.ir.SchemaLibrary` over ``onnx.defs``, remembering what it looked up."""

    def __init__(self) -> None:
        """Start with nothing looked up."""
        self._found: dict[tuple[str, str, int], OpSchema | None] = {}
        self._by_name: dict[tuple[str, str], list[OnnxSchema]] | None = None
        self._versions: dict[tuple[str, str], tuple[OpSchema, ...]] = {}

    def find(self, op_type: str, domain: str, version: int) -> OpSchema | None:
        """Return the schema in force at opset *version*, or None if there is none."""
        key = (op_type, domain, version)
        if key not in self._found:
            self._found[key] = self._look_up(*key)
        return self._found[key]

    def versions(self, op_type: str, domain: str) -> Iterable[OpSchema]:
        """Return every version of an operator's schema, oldest first; none if unknown."""
        key = (op_type, domain)
        if key not in self._versions:
            self._versions[key] = tuple(map(convert_schema, self._all().get(key, ())))
        return self._versions[key]

    def op_types(self, domain: str) -> Iterable[str]:
        """Return the operators known in *domain*; none for a domain onnx does not define."""
        return sorted(name for name, of_domain in self._all() if of_domain == domain)

    def _look_up(self, op_type: str, domain: str, version: int) -> OpSchema | None:
        try:
            schema = onnx.defs.get_schema(op_type, version, domain)
        except (onnx.defs.SchemaError, TypeError):
            return None  # TypeError: a version beyond 32 bits
        return convert_schema(schema)

    def _all(self) -> dict[tuple[str, str], list[OnnxSchema]]:
        if self._by_name is None:
            self._by_name = {}
            for schema in onnx.defs.get_all_schemas_with_history():
                self._by_name.setdefault((schema.name, schema.domain), []).append(schema)
            for schemas in self._by_name.values():
                schemas.sort(key=lambda schema: schema.since_version)
        return self._by_name


def convert_schema(schema: OnnxSchema) -> OpSchema:
    """Say the same as *schema* in the IR's words."""
    defaults: dict[str, Attribute] = {
        name: decode_attribute(attribute.default_value, {})
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type
    }
    return OpSchema(
        inputs=tuple(formal.name for formal in schema.inputs),
        min_inputs=schema.min_input,
        max_inputs=min(schema.max_input, _VARIADIC),
        outputs=tuple(formal.name for formal in schema.outputs),
        max_outputs=min(schema.max_output, _VARIADIC),
        attributes={
            name: str(attribute.type).rpartition(".")[2].lower()
            for name, attribute in schema.attributes.items()
        },
        defaults=defaults,
        since=schema.since_version,
        required_attributes=frozenset(
            name for name, attribute in schema.attributes.items() if attribute.required
        ),
        integer_inputs=frozenset(
            slot for slot, formal in enumerate(schema.inputs) if formal.types <= _INDEX_TYPES
        ),
    )
