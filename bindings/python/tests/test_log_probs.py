"""Log-probabilities, and a step from the derivatives of a loss by them: DPO against its formula over whole logits. trl's DPOTrainer
has the same loss (loss_type "sigmoid"); it is not among the packages that these tests install."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import gangway as gw

BETA = 0.3


def example():
    path = Path(__file__).parents[1] / "examples" / "dpo.py"
    spec = importlib.util.spec_from_file_location("dpo_example", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def from_logits(logits, labels):
    """log softmax(logits)[labels], 0 where a label is -100."""
    log_softmax = logits - np.logaddexp.reduce(logits, -1, keepdims=True)
    chosen = np.take_along_axis(log_softmax, np.maximum(labels, 0)[..., None], -1)[..., 0]
    return np.where(labels == -100, 0, chosen)


def dpo_loss(policy, reference, beta):
    """Equation 7 of the paper, of each pair."""
    pairs = len(policy) // 2
    log_ratio = policy.sum(1) - reference.sum(1)
    return -np.log(1 / (1 + np.exp(-beta * (log_ratio[:pairs] - log_ratio[pairs:]))))


@pytest.fixture
def models():
    with gw.init() as gangs:
        options = {"vocab": 31, "dim": 16, "layers": 2, "heads": 2, "initializer_range": 0.3}
        yield [gw.Llama(**options).parallelize(gangs, seed=seed, master_dtype="f64") for seed in (1, 2)]


def pairs():
    random = np.random.default_rng(0)
    tokens = random.integers(0, 31, (6, 9))
    labels = np.where(np.arange(9) < 3, -100, random.integers(0, 31, (6, 9)))
    return tokens, labels


def test_log_probs_are_those_of_whole_logits(models):
    tokens, labels = pairs()
    want = from_logits(np.asarray(models[0].forward(tokens)[0]), labels)
    np.testing.assert_allclose(gw.log_probs(models[0], tokens, labels), want, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gw.log_probs(models[0], tokens, labels, microbatches=2), want, rtol=1e-12, atol=1e-12)


def test_the_loss_of_the_example_is_that_of_the_paper(models):
    tokens, labels = pairs()
    policy, reference = (from_logits(np.asarray(m.forward(tokens)[0]), labels) for m in models)
    loss, slopes = example().dpo(*(gw.log_probs(m, tokens, labels) for m in models), beta=BETA)
    np.testing.assert_allclose(loss, dpo_loss(policy, reference, BETA), rtol=1e-12)
    step = 1e-6
    for at in ((0, 4), (4, 8)):
        more, less = policy.copy(), policy.copy()
        more[at] += step
        less[at] -= step
        slope = (dpo_loss(more, reference, BETA).sum() - dpo_loss(less, reference, BETA).sum()) / (2 * step)
        assert slopes[at] == pytest.approx(slope, rel=1e-7)


def test_a_step_with_the_negative_slopes_as_weights_descends_the_loss(models):
    tokens, labels = pairs()
    policy, reference = models
    before = gw.log_probs(reference, tokens, labels)
    loss, slopes = example().dpo(gw.log_probs(policy, tokens, labels), before, beta=BETA)
    rate = 1e-5
    result = gw.train_step(policy, gw.SGD(policy, lr=rate), tokens, labels, token_weights=-slopes, weight=3, max_grad_norm=1e30)
    assert result.weight_sum == 3
    after, _ = example().dpo(gw.log_probs(policy, tokens, labels), before, beta=BETA)
    assert (after.mean() - loss.mean()) / (-rate * result.grad_norm**2) == pytest.approx(1, rel=1e-3)


def test_generate_takes_prompts_of_different_lengths(models):
    prompts = [[3, 1, 4, 1, 5], [9], [2, 6]]
    together = models[0].generate(prompts, 6, temperature=0)
    assert together == [models[0].generate(prompt, 6, temperature=0) for prompt in prompts]
    stopped = models[0].generate(prompts, 6, temperature=0, stop_tokens=[together[0][1]])
    assert stopped[0] == together[0][:together[0].index(together[0][1]) + 1]
    seen = []
    ended = models[0].generate([3], 6, temperature=0, on_token=lambda row, token: seen.append((row, token)) or len(seen) < 2)
    assert seen == [(0, token) for token in ended] and len(ended) == 2
    with pytest.raises(ZeroDivisionError):
        models[0].generate([3], 6, on_token=lambda row, token: 1 / 0)
