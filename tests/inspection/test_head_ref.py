"""Sub-layers listed from the settings of a model, compared with those of its network."""

import pytest

from clearhead.inspection.trace.head_ref import list_sublayers
from clearhead.inspection.trace.sublayers import find_sublayers
from tests.inspection.small_models import IMAGE_MODELS, TEXT_MODELS, small_model


@pytest.mark.parametrize("name", TEXT_MODELS | IMAGE_MODELS)
def test_sublayers_of_settings_are_those_of_the_network(name: str) -> None:
    model = small_model(name)
    expected = [(sublayer.name, sublayer.layer, sublayer.num_heads) for sublayer in find_sublayers(model.network)]
    assert [
        (sublayer.name, sublayer.layer, sublayer.num_heads) for sublayer in list_sublayers(model.config.model)
    ] == expected
