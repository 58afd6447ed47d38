"""Sub-layers listed from the settings of a model, against those of its network."""

import pytest

from clearhead.inspection.trace.head_ref import list_sublayers
from clearhead.inspection.trace.sublayers import find_sublayers
from tests.inspection.small_models import IMAGE_MODELS, TEXT_MODELS, small_model


@pytest.mark.parametrize("name", TEXT_MODELS | IMAGE_MODELS)
def test_sublayers_of_settings_are_those_of_the_network(name: str) -> None:
    model = small_model(name)
    expected = [(one.name, one.layer, one.num_heads) for one in find_sublayers(model.network)]
    assert [(one.name, one.layer, one.num_heads) for one in list_sublayers(model.config.model)] == expected
