"""Which networks are what their weights say."""

from torch import nn

from clearhead.errors import InteropError


def need_plain(network: nn.Module) -> None:
    """Refuses a network in which parts are switched off or watched: another format would hold its weights alone."""
    if any(module._forward_hooks or module._forward_pre_hooks for module in network.modules()):
        raise InteropError(
            "expected a network as it was saved, got one with parts switched off; export the model as it was loaded"
        )
