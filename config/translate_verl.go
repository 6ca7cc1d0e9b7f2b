package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/headway-rl/headway/internal/printable"
)

// verlTrainer is one of verl's trainers. Each reads other keys.
type verlTrainer struct {
	// title and mark say which it is and by what it was known; preset has its rules.
	title, mark, preset string
	// rolloutGPUs is the section that counts the GPUs of rollouts.
	rolloutGPUs string
}

// Values that verl has for keys that a document leaves to it.
const (
	verlMiniBatch  = 256
	verlTrainBatch = 1024
	verlTensor     = 2
	verlGPUs       = 8
	verlSamples    = 16 // that each server of the fully asynchronous trainer has at once
)

// Keys of verl's that several values follow from.
const (
	verlN         = "actor_rollout_ref.rollout.n"
	verlMini      = "actor_rollout_ref.actor.ppo_mini_batch_size"
	verlRequire   = "async_training.require_batches"
	verlTrigger   = "async_training.trigger_parameter_sync_step"
	verlThreshold = "async_training.staleness_threshold"
	verlTrain     = "data.train_batch_size"
	verlResponse  = "data.max_response_length"
	verlV1Mode    = "trainer.v1.trainer_mode"
)

// verlDocument is a document of verl's on its way to one of Headway's.
type verlDocument struct {
	*hydra
	trainer verlTrainer
	lines   []line
	// n, groups and servers are the rollouts of a group, the groups of a batch and the servers.
	n, groups, servers int64
}

// translateVerl writes what a document of verl's says as one of Headway's.
func translateVerl(file string, text []byte) (Translated, error) {
	h, err := parseHydra(file, text)
	if err != nil {
		return Translated{}, err
	}
	d := &verlDocument{hydra: h}
	if !d.recognise() {
		return Translated{}, h.errs.in(text).orNil()
	}
	d.sizes()
	d.rules()
	d.engines()
	d.learning()
	if err := h.errs.in(text).orNil(); err != nil {
		return Translated{}, err
	}
	left := len(h.unread())
	body := writtenLines(d.lines)
	out := fmt.Sprintf("# %s of %s, written by headway config --from verl. verl's documents do not say how fast\n", d.trainer.title, printable.Text(file, len(file))) +
		"# engines and trainer are: simulate it with --set modelled.train.utilization=1, or measured values.\n" + body
	if left > 0 {
		out += "\n# Keys that are not carried over:\n" + h.writtenLeft(verlLeft)
	}
	return Translated{Text: []byte(out), Carried: h.said() - left, Left: left}, h.checkTranslated(out, d.lines)
}

// recognise finds out whose document it is.
func (d *verlDocument) recognise() bool {
	synchronous := verlTrainer{"The synchronous trainer", "no section async_training or rollout is there", "synchronous", "trainer"}
	mode, v1 := "", d.has(verlV1Mode)
	if v1 {
		mode, _ = d.word(verlV1Mode)
	}
	switch {
	case v1 && mode != "sync":
		d.fail(d.leaves[verlV1Mode], verlV1Mode, "is a trainer that no preset has the rules of", "sync; documents of verl's fully asynchronous, one-step-off and synchronous trainers are read")
	case d.has("async_training"):
		d.trainer = verlTrainer{"The fully asynchronous trainer", "async_training is there", "verl-fully-async", "rollout"}
	case d.has("rollout.nnodes") || d.has("rollout.n_gpus_per_node"):
		d.trainer = verlTrainer{"The one-step-off trainer", "rollout has GPUs of its own, and there is no async_training", "one-step-off", "rollout"}
	case d.has("actor_rollout_ref") || d.has("data"):
		d.trainer = synchronous
	default:
		d.errs = append(d.errs, &Error{File: d.file, Problem: "is no document of verl's: actor_rollout_ref and async_training are not there",
			Allowed: "the .hydra/config.yaml of a run, or what its command prints with --cfg job"})
	}
	return len(d.errs) == 0
}

// add writes a value, with the comment that is given or the key that it comes from.
func (d *verlDocument) add(own, value, from, comment string) {
	if comment == "" {
		comment = from
	}
	d.lines = append(d.lines, line{own, value, comment, from})
}

// source names a key, and says so where the document leaves its value to verl.
func (d *verlDocument) source(key string, value int64) string {
	if d.value(key) == nil {
		return fmt.Sprintf("%s (verl's default %d)", key, value)
	}
	return fmt.Sprintf("%s (%d)", key, value)
}

// sizes writes groups and batches. verl counts prompts where Headway counts rollouts.
func (d *verlDocument) sizes() {
	d.add("preset", d.trainer.preset, "", d.trainer.mark)
	d.n = d.count(verlN, 1)
	d.add("rollout.group_size", strconv.FormatInt(d.n, 10), verlN, d.source(verlN, d.n))
	mini := d.count(verlMini, verlMiniBatch)
	steps, stepsFrom := int64(1), ""
	if d.asynchronous() {
		steps = d.count(verlRequire, 1)
		d.groups, stepsFrom = mini*steps, verlRequire
		d.add("train.batch", strconv.FormatInt(d.groups*d.n, 10), verlMini,
			d.source(verlMini, mini)+" × "+d.source(verlRequire, steps)+" × rollout.n")
	} else {
		d.groups = d.count(verlTrain, verlTrainBatch)
		steps, stepsFrom = max((d.groups+mini-1)/mini, 1), verlMini
		d.add("train.batch", strconv.FormatInt(d.groups*d.n, 10), verlTrain, d.source(verlTrain, d.groups)+" × rollout.n")
	}
	if steps > 1 {
		comment := d.source(verlRequire, steps)
		if stepsFrom == verlMini {
			comment = verlTrain + " over " + d.source(verlMini, mini)
		}
		d.add("trainer.minibatches", strconv.FormatInt(steps, 10), stepsFrom, comment)
	}
}

// asynchronous reports whether the trainer is verl's fully asynchronous one.
func (d *verlDocument) asynchronous() bool { return d.trainer.preset == "verl-fully-async" }

// rules writes how far rollouts may be ahead, and how weights change.
func (d *verlDocument) rules() {
	every := "trainer.test_freq"
	syncs := int64(1)
	if d.asynchronous() {
		every, syncs = "rollout.test_freq", d.count(verlTrigger, 4)
		d.copied(verlThreshold, d.plain)
		d.copied(verlTrigger, d.plain)
		d.copied("async_training.partial_rollout", d.choice("restart", "drain"))
		d.copied("async_training.use_rollout_log_probs", d.choice("ppo-clip", "decoupled-ppo"))
		const total = "rollout.total_rollout_steps"
		if n, given := d.whole(total); given && n < d.groups {
			d.fail(d.leaves[total], total, fmt.Sprintf("is less than the %d groups of one batch", d.groups), fmt.Sprintf("at least %d", d.groups))
		} else if given {
			d.add(ownName[total], strconv.FormatInt(n/d.groups, 10), total, fmt.Sprintf("%s (%d groups) over those of a batch (%d)", total, n, d.groups))
		}
	} else {
		d.copied("trainer.total_training_steps", d.plain)
	}
	if n, given := d.whole(every); given {
		comment := every
		if syncs > 1 {
			comment = fmt.Sprintf("%s (%d) × %s", every, n, d.source(verlTrigger, syncs))
		}
		if n <= 0 {
			comment = every + ", which asks for none"
		}
		d.add(ownName[every], strconv.FormatInt(max(n, 0)*syncs, 10), every, comment)
	}
}

// engines writes the servers and what they have at once.
func (d *verlDocument) engines() {
	const tensor, data, pipeline, name = "actor_rollout_ref.rollout.tensor_model_parallel_size", "actor_rollout_ref.rollout.data_parallel_size",
		"actor_rollout_ref.rollout.pipeline_model_parallel_size", "actor_rollout_ref.rollout.name"
	gpus := d.count(d.trainer.rolloutGPUs+".nnodes", 1) * d.count(d.trainer.rolloutGPUs+".n_gpus_per_node", verlGPUs)
	each := d.count(tensor, verlTensor) * d.count(data, 1) * d.count(pipeline, 1)
	d.servers = min(max(gpus/each, 1), countMax)
	most, comment := d.groups, "a whole batch is generated at once"
	if d.asynchronous() {
		threshold, _ := d.number(verlThreshold)
		most = int64(min(float64(d.servers*verlSamples), float64(d.groups)*(1+threshold)*float64(d.count(verlTrigger, 4))))
		comment = fmt.Sprintf("%d samples a server, at most those that the threshold admits", verlSamples)
	}
	rollouts := most * d.n
	if seats, given := d.whole("actor_rollout_ref.rollout.max_num_seqs"); given && seats > 0 && seats*d.servers < rollouts {
		rollouts, comment = seats*d.servers, "actor_rollout_ref.rollout.max_num_seqs × servers"
	}
	d.add("rollout.concurrency", strconv.FormatInt(max(rollouts, d.servers), 10), "", comment)
	kind, given := d.word(name)
	comment = name
	if kind != "vllm" && kind != "sglang" {
		comment = name + " " + strconv.Quote(kind) + " is none that Headway samples with"
		if !given {
			comment = name + " is not said"
		}
		kind = "vllm"
	}
	d.add("engines.0.kind", kind, name, comment)
	d.add("engines.0.url", fmt.Sprintf("http://rollout-{1..%d}:8000", d.servers), "",
		fmt.Sprintf("verl starts its servers; give the addresses of yours: %s.nnodes × %s.n_gpus_per_node is %d GPUs, %s is %d a server", d.trainer.rolloutGPUs, d.trainer.rolloutGPUs, gpus,
			strings.Join(slices.DeleteFunc([]string{tensor, data, pipeline}, func(key string) bool { return d.leaves[key] == nil && key != tensor }), " × "), each))
	d.model()
	d.copied("actor_rollout_ref.rollout.temperature", d.plain)
	d.copied("actor_rollout_ref.rollout.top_p", d.plain)
	const topK = "actor_rollout_ref.rollout.top_k"
	if k, given := d.whole(topK); given {
		d.add(ownName[topK], strconv.FormatInt(max(k, 0), 10), topK, "")
	}
}

// model writes where the model is, without which there is no document.
func (d *verlDocument) model() {
	const path = "actor_rollout_ref.model.path"
	before := len(d.lines)
	if d.copied(path, d.quoted); len(d.lines) == before && len(d.errs) == 0 {
		d.errs = append(d.errs, &Error{File: d.file, Key: path, Problem: "is not there, and every document names its model",
			Allowed: "a directory; a whole document has it: the .hydra/config.yaml of a run, or what its command prints with --cfg job"})
	}
}

// learning writes lengths and what a train step does.
func (d *verlDocument) learning() {
	d.copied("data.max_prompt_length", d.plain)
	d.copied(verlResponse, d.plain)
	if longest := d.count(verlResponse, 0); longest > 0 {
		d.add("modelled.length.cap_tokens", strconv.FormatInt(longest, 10), verlResponse, verlResponse+", in simulations")
		mean := math.Ceil(float64(longest) * meanTokensDefault / capTokensDefault)
		d.add("modelled.length.mean_tokens", plainNumber(mean), verlResponse, "assumed, for simulations: give the mean of your responses")
	}
	d.copied("actor_rollout_ref.actor.optim.lr", d.plain)
	d.copied("actor_rollout_ref.actor.grad_clip", d.plain)
	d.copied("actor_rollout_ref.actor.clip_ratio", d.plain)
	d.copied("actor_rollout_ref.actor.clip_ratio_low", d.plain)
	d.copied("actor_rollout_ref.actor.clip_ratio_high", d.plain)
	d.copied("algorithm.norm_adv_by_std_in_grpo", d.choice("true", "false"))
}

// copied writes a value under the key that ownName has for verl's.
func (d *verlDocument) copied(key string, of func(key string) (string, bool)) {
	if d.leaves[key] == nil {
		return
	}
	if value, given := of(key); given {
		d.add(ownName[key], value, key, "")
	}
}

// plain is a number as it is written.
func (d *verlDocument) plain(key string) (string, bool) {
	n, given := d.number(key)
	return plainNumber(n), given
}

// plainNumber prints a number without digits that say nothing.
func plainNumber(n float64) string { return strconv.FormatFloat(n, 'g', -1, 64) }

// quoted is a text in quotes.
func (d *verlDocument) quoted(key string) (string, bool) {
	text, given := d.word(key)
	return strconv.Quote(text), given && strings.TrimSpace(text) != ""
}

// choice is one of two words, by a truth.
func (d *verlDocument) choice(yes, no string) func(key string) (string, bool) {
	return func(key string) (string, bool) {
		truth, given := d.yes(key)
		if truth {
			return yes, given
		}
		return no, given
	}
}

// verlLeft says why keys of verl's are left out.
var verlLeft = []leftOut{
	{"actor_rollout_ref.actor", "The loss, the optimizer and how the model is sharded are your trainer's."},
	{"actor_rollout_ref.actor.ppo_epochs", "A mini-batch is trained on once; your trainer may repeat it."},
	{"actor_rollout_ref.ref", "A reference model is your trainer's."},
	{"actor_rollout_ref.model", "Your trainer and your servers load the model."},
	{"actor_rollout_ref.rollout", "You start the servers, with flags of their own."},
	{"actor_rollout_ref.rollout.multi_turn", "Turns and tools are your environment's."},
	{"actor_rollout_ref.rollout.agent", "Turns and tools are your environment's."},
	{"actor_rollout_ref.rollout.val_kwargs", "Held-out prompts are answered greedily."},
	{"actor_rollout_ref", "Headway places no models on GPUs."},
	{"critic", "Advantages are of groups (GRPO); a critic is your trainer's."},
	{"reward_model", "Rewards are your environment's."},
	{"reward_manager", "Rewards are your environment's."},
	{"reward", "Rewards are your environment's."},
	{"custom_reward_function", "Rewards are your environment's."},
	{"algorithm", "Advantages are of groups (GRPO); your trainer may compute others, with penalties of its own."},
	{"algorithm.rollout_correction", "trainer.correction has these by other names: kinds tis, token-mask and sequence-mask."},
	{"data", "Prompts are your environment's."},
	{verlTrain, "verl's fully asynchronous trainer does not read it."},
	{"rollout", "verl's fully asynchronous trainer takes the group from actor_rollout_ref.rollout.n; an epoch is of your prompts."},
	{"async_training", "How weights travel is engines.weights; the trainer's own log-probs are your trainer's."},
	{"trainer", "Logs, checkpoints and GPUs are your trainer's; an epoch is of your prompts, so give trainer.steps."},
	{"defaults", "Hydra's own."}, {"hydra", "Hydra's own."},
	{"ray_kwargs", "There is no Ray."}, {"ray_init", "There is no Ray."},
	{"transfer_queue", "The queue is the control plane's."},
	{"global_profiler", "Profiling is your trainer's."},
}

// verlsOwn refuses a document of verl's, nil for another. All its keys would be unknown.
func verlsOwn(file string, body ast.Node) *Error {
	root := mappingOf(body)
	if root == nil {
		return nil
	}
	for _, entry := range root.Values {
		if key, _ := keyOf(entry.Key); key == "actor_rollout_ref" || key == "async_training" {
			at := entry.Key.GetToken().Position
			return &Error{File: file, Line: at.Line, Column: at.Column, Key: key, Problem: "is of a document of verl's", Allowed: "what headway config --from verl FILE writes of it"}
		}
	}
	return nil
}
