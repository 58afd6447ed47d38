"""Weights of one model, and the native model and torch network that are built from them on first use."""

import threading
from collections.abc import Callable
from typing import Any

from clearhead.bundle import Bundle
from clearhead.config import ModelConfig
from clearhead.engines.threads import set_torch_threads
from clearhead.extras import require_package
from clearhead.runtime import ComputeType, NativeModel, prepare

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")  # statistics of batch norm


class ModelWeights:
    """Weights of a bundle, or a torch network. Safe to use from several threads.

    The arrays of a bundle are released after a model has been built from them, so that the weights are in memory once;
    for a second engine the bundle is read again.
    """

    def __init__(
        self, config: ModelConfig, bundle: Bundle | None = None, read: Callable[[], Bundle] | None = None,
        network: Any = None,
    ) -> None:  # fmt: skip
        """`read`: function that reads the bundle again. `network`: replaces the bundle, for the torch engine."""
        self.config = config
        self.num_parameters = _count_parameters(bundle, network)
        self.is_changed = network is not None
        self._bundle, self._read, self._network = bundle, read, network
        self._native: dict[str, NativeModel] = {}
        self._lock = threading.Lock()

    @property
    def torch_network(self) -> Any:
        """The torch network, in evaluation mode. Raises MissingPackageError if torch is not installed."""
        require_package("torch", "the torch engine")
        with self._lock:
            if self._network is None:
                self._network = _build(self.config, self._take_bundle())
            return self._network

    def native_model(self, compute_type: ComputeType = "float32") -> NativeModel:
        """Return the model prepared for the native engine. Raises BundleError if it cannot run there."""
        with self._lock:
            if compute_type not in self._native:
                self._native[compute_type] = prepare(self.config, self._take_bundle().weights, compute_type)
            return self._native[compute_type]

    def _take_bundle(self) -> Bundle:
        """Return the bundle and drop the reference to it."""
        bundle, self._bundle = self._bundle, None
        if bundle is None:
            assert self._read is not None
            bundle = self._read()
        return bundle


def _build(config: ModelConfig, bundle: Bundle) -> Any:
    """Return a torch network with the weights of a bundle."""
    import torch

    from clearhead.model.parameters import restore
    from clearhead.model.registry import build_model

    set_torch_threads()
    with torch.random.fork_rng(devices=[]):  # initial weights are drawn; the caller's random state does not change
        network = build_model(config)
    restore(network, bundle.tensors())
    return network.eval()


def _count_parameters(bundle: Bundle | None, network: Any) -> int:
    """Return the number of trained values, each tied tensor counted once."""
    if network is not None:
        return sum(parameter.numel() for parameter in network.parameters())
    assert bundle is not None
    trained = {id(array): array.size for name, array in bundle.weights.items() if not name.endswith(BUFFERS)}
    return sum(trained.values())
