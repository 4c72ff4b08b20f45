"""What exists because a paper has it.

Bounds (`theory`), constructions (`instances`), claims and their tests (`reproduce`), Hu et al.'s
calculus (`price`), directions of gradients (`trajectories`), the geometric median (`median`), and
trainers, recipes and commands beside those of the library. It may import everything; nothing
imports it. What others look up by name, it adds to their registries (`tacit.registry`).
"""
