"""What a stage without noise costs, by four ways (Hu, Sanyal & Schölkopf 2024)."""

from tacit.research.price.price import Price, price

__all__ = ["Price", "price"]
