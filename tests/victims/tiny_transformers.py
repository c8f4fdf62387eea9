"""Random networks of transformers, a few kilobytes each, in folders with the names of published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.helpers import real_package

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
PICTURE = {"image_size": 8, "patch_size": 4, "num_channels": 3}
WORDS = ["<pad>", "<s>", "</s>", "<unk>", "a", "photo", "of", "digit", *map(str, range(10))]


def _processor(folder: Path) -> None:
    size = {"height": 8, "width": 8}
    made = real_package("transformers").ViTImageProcessor(size=size, image_mean=[0.5] * 3, image_std=[0.25] * 3)
    made.save_pretrained(folder)


def tiny_vit(place: Path) -> None:
    package, folder = real_package("transformers"), place / "google/vit-base-patch16-224"
    package.ViTForImageClassification(package.ViTConfig(**SIZES, **PICTURE, num_labels=10)).save_pretrained(folder)
    _processor(folder)


def tiny_video(place: Path) -> None:
    package, folder = real_package("transformers"), place / "MCG-NJU/videomae-base"
    config = package.VideoMAEConfig(**SIZES, **PICTURE, num_frames=2, tubelet_size=1, num_labels=4)
    package.VideoMAEForVideoClassification(config).save_pretrained(folder)
    _processor(folder)


def tiny_sounds(place: Path) -> None:
    package, folder = real_package("transformers"), place / "superb/wav2vec2-base-superb-ks"
    config = package.Wav2Vec2Config(
        **SIZES, conv_dim=(8, 8), conv_stride=(5, 4), conv_kernel=(10, 8), num_feat_extract_layers=2, num_labels=4,
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, classifier_proj_size=8,
    )  # fmt: skip
    package.Wav2Vec2ForSequenceClassification(config).save_pretrained(folder)
    package.Wav2Vec2FeatureExtractor().save_pretrained(folder)


def tiny_clip(place: Path) -> Any:
    """The network; its words are in `WORDS`."""
    package, folder = real_package("transformers"), place / "openai/clip-vit-base-patch32"
    tokenizers = real_package("tokenizers")
    text = {**SIZES, "vocab_size": len(WORDS), "max_position_embeddings": 16}
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = package.CLIPConfig(text_config=text | ends, vision_config=SIZES | PICTURE, projection_dim=8)
    model = package.CLIPModel(config).eval()
    model.save_pretrained(folder)
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.post_processor = tokenizers.processors.TemplateProcessing(
        "<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    package.PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=16, **names).save_pretrained(folder)
    _processor(folder)
    return model
