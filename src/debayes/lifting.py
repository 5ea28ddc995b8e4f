"""Networks without their lowest level: a start for trainings of networks that have their blocks higher up."""

from dataclasses import replace

from debayes.model import Network, UNet, to_channels_last


def lift(network: Network) -> Network:
    """A copy of a U-Net without its lowest level: the blocks of the one above it, down and up, are the bottom now.

    If the lowest level added nothing, it gives the same pixels.
    """
    config = network.config
    if not isinstance(network.body, UNet) or len(config.widths) < 2:
        raise ValueError("only a U-Net of two levels or more has a lowest level to take out")
    low = len(config.widths) - 2  # the level that is to be the bottom
    *levels, tail = [hidden for _, hidden in config.stacks]
    down, up = levels[: low + 1], levels[low + 2 :]
    hidden = [*down[:low], down[low] + up[low], *up[:low], tail]
    lifted = Network(
        replace(
            config,
            widths=config.widths[:-1],
            bottom_blocks=2 * config.blocks,
            hidden=tuple(channels for stack in hidden for channels in stack) if config.hidden else (),
        )
    )
    body = lifted.body
    assert isinstance(body, UNet)
    gone = ("body.bottom.", *(f"body.{part}.{low}." for part in ("down", "up", "shrink", "grow")))
    kept = {name: values for name, values in network.state_dict().items() if not name.startswith(gone)}
    lifted.load_state_dict(kept, strict=False)
    above = [*network.body.down[low].children(), *network.body.up[low].children()]
    for block, target in zip(above, body.bottom.children(), strict=True):
        target.load_state_dict(block.state_dict())
    return to_channels_last(lifted)
