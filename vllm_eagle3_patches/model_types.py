"""Which model_type an architecture's `hf_text_config` has, where no config.json was given.

In this order: the table of published models whose config is code of their own; the transformers
that lies beside vLLM, read as text; `data/model_types.json`, made from public wheels by
`tools/make_model_types.py`.  Never guessed from the name.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from vllm_eagle3_patches import transformers_names
from vllm_eagle3_patches.sources import Sources

DATA = Path(__file__).parent / "data" / "model_types.json"

# Architecture -> the model types of the text config, for what transformers does not map: before
# each group where it is known from.  Several where published models differ.
REMOTE: dict[str, tuple[str, ...]] = {
    # From memory of the published config.json files, which were not at hand when this was written
    # (a folder with the real one always wins); flat ones, the config is its own text config:
    # BAAI/AquilaChat-7B and AquilaChat2-7B, baichuan-inc/baichuan-7B and Baichuan2-13B-Chat,
    # deepseek-ai/deepseek-moe-16b-base, inclusionAI/Ling-lite and Ling-mini-2.0 (V2 kept the
    # name) and Ring-2.5-1T, LGAI-EXAONE/EXAONE-3.0-7.8B-Instruct and K-EXAONE-236B-A23B,
    # hpcai-tech/grok-1, internlm/internlm-chat-7b, internlm2-chat-7b and internlm3-8b-instruct,
    # decapoda-research/llama-7b-hf, openbmb/MiniCPM-2B, MiniMaxAI/MiniMax-Text-01 and
    # MiniMax-M1-40k, mosaicml/mpt-7b, XiaomiMiMo/MiMo-7B-RL, OrionStarAI/Orion-14B-Chat,
    # ByteDance/Ouro-1.4B, FreedomIntelligence/openPangu-Embedded-7B-V1.1 and
    # openPangu-Ultra-MoE-718B-V1.1, microsoft/Phi-3.5-MoE-instruct, Qwen/Qwen-7B-Chat and
    # Qwen-VL, stabilityai/stablelm-3b-4e1t of 2023, upstage/solar-pro-preview-instruct,
    # xverse/XVERSE-7B-Chat, microsoft/Phi-3-vision-128k-instruct and
    # Phi-4-multimodal-instruct, allenai/Molmo-7B-D-0924, openbmb/MiniCPM-V-2_6 and
    # MiniCPM-o-2_6, zai-org/glm-4v-9b, IQuestLab/IQuest-Coder-V1-40B-Instruct and
    # -Loop-Instruct, stepfun-ai/Step-Audio-EditX.
    "AquilaModel": ("aquila",),
    "AquilaForCausalLM": ("aquila",),
    "BaiChuanForCausalLM": ("baichuan",),
    "BaichuanForCausalLM": ("baichuan",),
    "DeepseekForCausalLM": ("deepseek",),
    "BailingMoeForCausalLM": ("bailing_moe",),
    "BailingMoeV2ForCausalLM": ("bailing_moe",),
    "BailingMoeV2_5ForCausalLM": ("bailing_hybrid",),
    "ExaoneForCausalLM": ("exaone",),
    "ExaoneMoEForCausalLM": ("exaone_moe",),
    "Grok1ModelForCausalLM": ("grok-1",),
    "InternLMForCausalLM": ("internlm",),
    "InternLM2ForCausalLM": ("internlm2",),
    "InternLM3ForCausalLM": ("internlm3",),
    "LLaMAForCausalLM": ("llama",),
    "MiniCPMForCausalLM": ("minicpm",),
    "MiniMaxText01ForCausalLM": ("minimax_text_01",),
    "MiniMaxM1ForCausalLM": ("minimax_m1",),
    "MPTForCausalLM": ("mpt",),
    "MiMoForCausalLM": ("mimo",),
    "OrionForCausalLM": ("orion",),
    "OuroForCausalLM": ("ouro",),
    "PanguEmbeddedForCausalLM": ("PanguEmbedded",),
    "PanguUltraMoEForCausalLM": ("pangu_ultra_moe",),
    "PhiMoEForCausalLM": ("phimoe",),
    "QWenLMHeadModel": ("qwen",),
    "QwenVLForConditionalGeneration": ("qwen",),
    "StableLMEpochForCausalLM": ("stablelm_epoch",),
    "SolarForCausalLM": ("solar",),
    "XverseForCausalLM": ("xverse",),
    "Phi3VForCausalLM": ("phi3_v",),
    "Phi4MMForCausalLM": ("phi4mm",),
    "MolmoForCausalLM": ("molmo",),
    "MiniCPMV": ("minicpmv",),
    "MiniCPMO": ("minicpmo",),
    "GLM4VForCausalLM": ("chatglm",),
    "IQuestCoderForCausalLM": ("iquestcoder",),
    "IQuestLoopCoderForCausalLM": ("iquestloopcoder",),
    "Step1ForCausalLM": ("step1",),
    # `model_type` of vLLM's own config class (vllm/transformers_utils/configs/*.py, or in
    # models/plamo2.py and plamo3.py), whose text config is the config itself.
    "ArcticForCausalLM": ("arctic",),
    "ChatGLMModel": ("chatglm",),
    "ChatGLMForConditionalGeneration": ("chatglm",),
    "DotsOCRForCausalLM": ("dots_ocr",),
    "JAISLMHeadModel": ("jais",),
    "Plamo2ForCausalLM": ("plamo2",),
    "Plamo3ForCausalLM": ("plamo3",),
    "Step3TextForCausalLM": ("step3_text",),
    "Step3p5ForCausalLM": ("step3p5",),
    # vllm/config/speculative.py and models/nemotron_h_mtp.py (0.32.0) ask for it by this name.
    "NemotronHPuzzleForCausalLM": ("nemotron_h_puzzle",),
    # `_CONFIG_REGISTRY` of vLLM: tiiuae/falcon-40b and falcon-7b, before they were `falcon`.
    "RWForCausalLM": ("RefinedWeb", "RefinedWebModel"),
    # vllm/transformers_utils/configs/mistral.py makes the config.
    "MistralLarge3ForCausalLM": ("deepseek_v3",),
    # Likewise from memory, `text_config.model_type` of: moonshotai/Kimi-VL-A3B-Instruct,
    # CohereLabs/aya-vision-8b, Qwen/Qwen2-Audio-7B-Instruct, HuggingFaceM4/Idefics3-8B-Llama3,
    # HuggingFaceTB/SmolVLM2-2.2B-Instruct, adept/fuyu-8b, kakaocorp/kanana-1.5-v-3b-instruct,
    # mispeech/midashenglm-7b, nvidia/audio-flamingo-3-hf, FunAudioLLM/Fun-Audio-Chat-8B,
    # zai-org/GLM-ASR-Nano-2512, xlangai/OpenCUA-7B.
    "KimiVLForConditionalGeneration": ("deepseek_v3",),
    "AyaVisionForConditionalGeneration": ("cohere2",),
    "Qwen2AudioForConditionalGeneration": ("qwen2",),
    "Idefics3ForConditionalGeneration": ("llama",),
    "SmolVLMForConditionalGeneration": ("llama",),
    "FuyuForCausalLM": ("persimmon",),
    "KananaVForConditionalGeneration": ("kanana-1.5-3b-instruct",),
    "MiDashengLMModel": ("qwen2_5_omni_text",),
    "AudioFlamingo3ForConditionalGeneration": ("qwen2",),
    "FunAudioChatForConditionalGeneration": ("qwen3",),
    "GlmAsrForConditionalGeneration": ("llama",),
    "OpenCUAForConditionalGeneration": ("qwen2",),
    # The config class that vLLM's own processor or config demands: Qwen2Config (bagel.py,
    # fireredasr2.py), Qwen3Config (funasr.py, isaac.py), Qwen2VLConfig (tarsier2), and the text
    # part of qwen2_5_omni and of vLLM's qwen3_asr.
    "BagelForConditionalGeneration": ("qwen2",),
    "FireRedASR2ForConditionalGeneration": ("qwen2",),
    "FunASRForConditionalGeneration": ("qwen3",),
    "IsaacForConditionalGeneration": ("qwen3",),
    "Tarsier2ForConditionalGeneration": ("qwen2_vl_text",),
    "Qwen2_5OmniModel": ("qwen2_5_omni_text",),
    "Qwen3ASRForConditionalGeneration": ("qwen3_asr_text",),
    "Qwen3ASRRealtimeGeneration": ("qwen3_asr_text",),
}


@lru_cache(maxsize=1)
def _facts() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DATA.read_text())
    return found


def of_architecture(sources: Sources, architecture: str) -> tuple[str, ...]:
    """The model types its text config may have; none where that is not known."""
    if architecture in REMOTE:
        return REMOTE[architecture]
    folder = sources.root / "transformers"
    installed = _installed(folder).get(architecture)
    if installed:
        types = transformers_names.text_types(folder, architecture, installed)
        return tuple(t for t in types if t is not None) if None not in types else ()
    return tuple(_facts()["architectures"].get(architecture, ()))


@lru_cache(maxsize=4)
def _installed(folder: Path) -> dict[str, list[str]]:
    return transformers_names.classes(folder)


def of_text(own: str) -> str:
    """The model_type of the text config that a config.json of this model_type gets when it says
    nothing of one (Qwen/Qwen2-VL-7B-Instruct: qwen2_vl_text)."""
    return str(_facts()["text"].get(own, own))


def causal_class(sources: Sources, model_type: str) -> str | None:
    """The causal class transformers has for a model_type, which vLLM takes where the text config
    names no architecture."""
    found = transformers_names.causal(sources.root / "transformers") or _facts()["causal"]
    name = found.get(model_type)
    return None if name is None else str(name)
