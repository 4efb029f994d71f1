// Which keys of a config.json change what a model computes, beyond those in the table of its family.
#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>

#include "families/family.h"

namespace gangway {
namespace {

// What transformers of all releases from 2 on writes into any config.json, and what scripts, tokenizers and
// runtimes put there: names, token ids, and settings of generation, training, classification heads and of a
// browser. The classes of the families read none of them, except for lengths of sequences, which they only
// check. auto_map names code beside the weights, which transformers does not run for these families either,
// unless it is asked to.
constexpr char kHarmless[] = R"(
_attn_implementation _attn_implementation_autoset _attn_implementation_internal _commit_hash
_experts_implementation_internal _flash_attn_2_enabled _name_or_path _num_labels add_bos_token
add_cross_attention add_eos_token add_prefix_space architectures assistant_confidence_threshold
assistant_early_exit assistant_ensemble_weight assistant_lookbehind attn_implementation auto_map
bad_words_ids base_model_pp_plan base_model_tp_plan begin_suppress_tokens bos_token_id cache_config
cache_implementation chat_template chunk_size_feed_forward classifier_dropout classifier_dropout_prob
clean_up_tokenization_spaces compile_config constraints continuous_batching_config
cross_attention_hidden_size custom_pipelines decoder_start_token_id disable_compile diversity_penalty
do_sample dola_layers dtype early_stopping encoder_no_repeat_ngram_size encoder_repetition_penalty
eos_token_id eos_token_ids epsilon_cutoff eta_cutoff exponential_decay_length_penalty finetuning_task
force_words_ids forced_bos_token_id forced_decoder_ids forced_eos_token_id gradient_checkpointing
guidance_scale id2label is_assistant is_decoder is_encoder_decoder is_llama_config label2id length_penalty
low_memory max_cache_len max_length max_matching_ngram_size max_new_tokens max_seq_len max_seq_length
max_sequence_length max_time min_length min_new_tokens min_p model_max_length n_special name_or_path
neftune_noise_alpha no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule num_beam_groups
num_beams num_labels num_return_sequences output_attentions output_hidden_states output_logits output_past
output_scores pad_token_id padding_side penalty_alpha predict_special_tokens prefill_chunk_size prefix
pretraining_tp problem_type prompt_lookup_num_tokens pruned_heads remove_invalid_values renormalize_logits
repetition_penalty return_dict return_dict_in_generate return_legacy_cache sep_token_id sequence_bias
stop_strings suppress_tokens target_lookbehind task_specific_params temperature tf_legacy_loss
tie_encoder_decoder token_healing tokenizer_class top_h top_k top_p torch_dtype torchscript
transformers.js_config transformers_version truncation_side typical_p unsloth_fixed unsloth_version
use_bfloat16 use_cache use_fast use_flash_attention_2 use_flash_attn use_return_dict use_sdpa
vocab_size_or_config_json_file watermarking_config xla_device)";

// Words that configurations of models use in the names of keys that matter. They cover what the configuration
// classes of transformers 4.57 and 5.0 take, except for ids of tokens and for losses, vision and speech.
constexpr char kWordsOfModels[] = R"(
abs absolute act activation adapter alibi alpha architecture architectures attention attn base beta bias
bidirectional block blocks cap capacity causal channel channels chunk clamp clip codebook coef
coefficient config conv cross ctx d decay decoder delta dense depth depths dequant dilation dim dims
dropout dtype embd embed embedding embeddings encoder eps epsilon every expand expansion expert experts
factor factors feature features ff ffn fn function fused fusion gamma gate gated gating glu gradient
group groups head heads hidden hybrid idx in index init initial initializer inner input interleave
interleaved intermediate interval k kernel key kv lambda latent latents layer layerdrop layernorm layers
layerscale legacy len length limit linear lm local logit logits lora low mamba map mapping mask masked
max memory method min mixer mlp mode moe moving mrope mscale mult multiplier multipliers mup n norm
normalization normalize num offset out output pad padding parallel parallelization path pattern pdrop per
period pool pooling pos position positional positions post pre prenorm proj projection q qk qkv quant
quantiles quantization quantized query range rank rate ratio ratios recurrent relative repeat residual
rms rope rotary rotate route routed router routing scalar scale scaled scales scaling score section seq
sequence share shared shift sink sinks size sliding slope soft softcap softcapping softmax sparse
sparsity spec ssm stage stages state states std step strategy stride strides style tanh temperature text
theta threshold tie tied time top topk tp transform type types use v value values variant vision vocab
vocabulary weight weights width window windows xpos)";

// Without a stream, which would take want of memory for the end of the text.
std::set<std::string_view> words_of(std::string_view text) {
  constexpr std::string_view kSpaces = " \n";
  std::set<std::string_view> all;
  for (size_t at = text.find_first_not_of(kSpaces); at != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
    all.insert(text.substr(at, end - at));
    at = text.find_first_not_of(kSpaces, end);
  }
  return all;
}

// Returns whether the key has a word of configurations of models. Words end at anything but a letter.
bool speaks_of_models(const std::string& key) {
  static const std::set<std::string_view> all = words_of(kWordsOfModels);
  std::string word;
  for (const char c : key + " ") {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (all.contains(word)) return true;
    word.clear();
  }
  return false;
}

// Returns whether `name` is `pattern`, where `*` stands for digits, which are set.
bool matches(const std::string& pattern, const std::string& name, std::string& digits) {
  const size_t star = pattern.find('*');
  if (star == std::string::npos) return pattern == name;
  const size_t behind = pattern.size() - star - 1;
  if (name.size() <= star + behind || name.compare(0, star, pattern, 0, star) != 0 ||
      name.compare(name.size() - behind, behind, pattern, star + 1, behind) != 0)
    return false;
  digits = name.substr(star, name.size() - star - behind);
  return std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

bool is_harmless(const Family& family, const std::string& key) {
  static const std::set<std::string_view> all = words_of(kHarmless);
  const bool listed = all.contains(key) || std::any_of(family.harmless.begin(), family.harmless.end(),
                                                       [&](const char* name) { return key == name; });
  return listed || !speaks_of_models(key);
}

const RenamedParameter* renaming_of(const Family& family, const std::string& parameter) {
  std::string digits;
  const auto found =
      std::find_if(family.renamed.begin(), family.renamed.end(),
                   [&](const RenamedParameter& row) { return matches(row.ours, parameter, digits); });
  return found == family.renamed.end() ? nullptr : &*found;
}

std::string name_in_files(const Family& family, const std::string& parameter) {
  const RenamedParameter* renamed = renaming_of(family, parameter);
  if (renamed == nullptr) return parameter;
  std::string digits, name = renamed->theirs;
  matches(renamed->ours, parameter, digits);
  if (const size_t star = name.find('*'); star != std::string::npos) name.replace(star, 1, digits);
  return name;
}

}  // namespace gangway
