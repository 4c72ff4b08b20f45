"""Modules of PyTorch, trained on the same engine of noise and account."""

from tacit.networks.fit import ModuleFit, fit_module

__all__ = ["ModuleFit", "fit_module"]
