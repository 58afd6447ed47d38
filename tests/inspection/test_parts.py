"""The parts of a model as its settings say, against those of its network."""

import pytest

from clearhead.inspection.trace.head_ref import list_head_refs
from clearhead.inspection.trace.sublayers import sub_layers
from tests.inspection.small import PICTURES, TEXTS, small


@pytest.mark.parametrize("name", TEXTS | PICTURES)
def test_settings_say_which_parts_a_network_has(name: str) -> None:
    model = small(name)
    expected = [(one.name, one.layer, one.num_heads) for one in sub_layers(model.network)]
    assert [(one.name, one.layer, one.heads) for one in list_head_refs(model.config.model)] == expected
