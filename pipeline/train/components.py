"""The choice of parameters that train, checked against the model that they are in. Free of torch."""

from pipeline.model.components import ALL, check_present, is_trainable
from pipeline.model.config import ModelConfig
from pipeline.model.lora import is_target
from pipeline.parallel.layout import Layout
from pipeline.parallel.shapes import adapter_shapes, parameter_shapes
from pipeline.train.config import TrainConfig


def check_components(
    train: TrainConfig, model: ModelConfig, layout: Layout | None = None, *, extended: bool = False
) -> None:
    """Raise ValueError where the settings of training name a component that the model does not have.

    Also raise it where the layout, if there is one, cuts inputs of adapters that have dropout, and where embeddings
    have new rows and do not train.
    extended: whether the vocabulary has pieces that the initial model lacks.
    """
    if extended and not is_trainable("source_embedding_VM", train.components):
        frozen = "train.lora" if train.lora else f"train.trainable={list(train.trainable)}"
        raise ValueError(
            f"vocab.extend: new pieces need rows of the embeddings that train, and {frozen} freezes these; train "
            "embeddings too, as train.trainable=[embeddings,norms]"
        )
    shapes = parameter_shapes(model, source_vocabulary=1, target_vocabulary=1, shared=True)
    names = [shape.name for shape in shapes]
    if train.trainable != ALL:
        check_present("train.trainable", train.trainable, names)
        names = [name for name in names if is_trainable(name, train.trainable)]
    if (lora := train.lora) is not None:
        for target in lora.targets:
            if not any(is_target(name, [target]) for name in names):
                raise ValueError(f"train.lora.targets: the model has no {target} outside of experts; leave it out")
        cut = next((letter for letter in "HN" if layout and layout.axis(letter)), None)
        if lora.dropout and cut:
            raise ValueError(
                f"train.lora.dropout={lora.dropout}: the layout cuts {cut}, and each process would draw other zeros "
                "than one device does; set it to 0, or train without runtime.mp"
            )
        names = [shape.name for shape in adapter_shapes(shapes, lora.rank, lora.targets)]
    check_present("train.learning_rate_factors", train.learning_rate_factors, names)
