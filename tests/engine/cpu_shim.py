"""What the CPU backend of vLLM 0.15 - 0.17 lacks for speculative decoding, and nothing else.

Those versions refuse a speculative config on the CPU. Everything a GPU user meets stays vLLM's
own: the model is loaded by GPUModelRunner.load_model, which asks for the interface and sets the
layers (`rehearsal/inside/old_cpu.py`). Only device matters are replaced here: CUDA streams around
host copies, and four small Triton kernels of the greedy path, in plain Python of the same meaning.
"""

import torch
from package import reachable

reachable()

from vllm_eagle3_patches.rehearsal.inside import old_cpu  # noqa: E402


def install():
    old_cpu.install()
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    _host_copies(CPUModelRunner)
    _kernels()


def _host_copies(runner):
    def copy_draft_token_ids_to_cpu(self, scheduler_output, zeros_only=False):
        self._draft_token_req_ids = self.input_batch.req_ids.copy()
        if zeros_only and torch.is_tensor(self._draft_token_ids):
            self._draft_token_ids = torch.zeros_like(self._draft_token_ids)

    def get_draft_token_ids_cpu(self):
        if isinstance(self._draft_token_ids, list):
            return self._draft_token_ids, self.input_batch.req_ids
        if self._draft_token_req_ids is None:
            return [], []
        return self._draft_token_ids.tolist(), self._draft_token_req_ids

    runner._copy_draft_token_ids_to_cpu = copy_draft_token_ids_to_cpu
    runner._get_draft_token_ids_cpu = get_draft_token_ids_cpu
    runner._to_list = lambda self, sampled_token_ids: sampled_token_ids.tolist()


class _Kernel:
    """Called as a Triton kernel is: kernel[grid](arguments)."""

    def __init__(self, function):
        self.function = function

    def __getitem__(self, grid):
        return self.function


def _kernels():
    from vllm.triton_utils import triton
    from vllm.v1.sample import rejection_sampler
    from vllm.v1.spec_decode import eagle

    if not hasattr(triton, "next_power_of_2"):
        triton.next_power_of_2 = lambda n: 1 << (n - 1).bit_length()
    for module, function in (
        (rejection_sampler, rejection_greedy_sample_kernel),
        (rejection_sampler, expand_kernel),
        (eagle, eagle_prepare_next_token_padded_kernel),
        (eagle, eagle_prepare_inputs_padded_kernel),
    ):
        assert hasattr(module, function.__name__), f"no {function.__name__} in {module.__name__}"
        setattr(module, function.__name__, _Kernel(function))


def _spans(cumulative):
    ends = cumulative.tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def rejection_greedy_sample_kernel(output, cu_num_draft, draft, argmax, bonus, is_greedy, max_spec):
    for row, (start, end) in enumerate(_spans(cu_num_draft)):
        if is_greedy is not None and not is_greedy[row]:
            continue
        for place, token in enumerate(draft[start:end].tolist()):
            output[row, place] = argmax[start + place]
            if token != int(argmax[start + place]):
                break
        else:
            output[row, end - start] = bonus.view(-1)[row]


def expand_kernel(output, values, cu_num_tokens, replace_from, replace_to, **constants):
    for row, (start, end) in enumerate(_spans(cu_num_tokens)):
        value = values[row]
        output[start:end] = replace_to if value == replace_from else value


def eagle_prepare_next_token_padded_kernel(
    sampled, discarded, backup, next_tokens, valid_counts, vocab_size, *sizes, **constants
):
    for row, tokens in enumerate(sampled.tolist()):
        valid = [t for t in tokens if t != -1 and t < vocab_size]
        if discarded[row]:
            valid = []
        next_tokens[row] = valid[-1] if valid else backup[row]
        valid_counts[row] = len(valid)


def eagle_prepare_inputs_padded_kernel(
    cu_num_draft, valid_counts, query_start, to_sample, rejected, num_reqs
):
    for row, (start, end) in enumerate(_spans(cu_num_draft[:num_reqs])):
        rejected_here = end - start + 1 - int(valid_counts[row]) if end > start else 0
        to_sample[row] = query_start[row + 1] - 1 - rejected_here
        rejected[row] = rejected_here
