package cases

import (
	"regexp"
	"strconv"
	"strings"
)

// kind is which question a row asks.
type kind int

const (
	kindStep  kind = iota // a step of the whole loop
	kindTrain             // the trainer alone
	kindSync              // a weight sync alone
	kindServe             // generation alone
)

// rules are what the words of a row say of its loop.
type rules struct {
	kind kind
	// async, shared: training and generation overlap; they have the same GPUs.
	async, shared bool
	// helping says that the trainer's GPUs generate while they do not train.
	helping bool
	// ahead is how many batches may be generated ahead of the trainer's.
	ahead float64
	// pieces is how many updates a batch is trained in as its parts become ready.
	pieces int
	// inFlight says that engines generate on while weights change.
	inFlight bool
	// syncEvery is the number of steps between two syncs.
	syncEvery float64
	// sharded says that weights travel as shards to shards.
	sharded bool
	// buckets says that weights travel whole, in large buckets.
	buckets bool
	// fsdp says that the trainer shards parameters without splitting a model.
	fsdp bool
	// lora says that adapters alone are trained.
	lora bool
	// supervised says that no engine takes the weights.
	supervised bool
	// offloaded says that the optimizer's state lies in the host's memory between updates.
	offloaded bool
	// rolloutBytes and trainBytes are those of a weight.
	rolloutBytes, trainBytes float64
	// inFlightRollouts is how many rollouts run at once in all, 0 for as many as fit.
	inFlightRollouts int
}

var (
	supervised = regexp.MustCompile(`(?i)\bSFT\b|supervised`)
	switched   = regexp.MustCompile(`(?:^|[^o] |, |; )(?:gpus )?switch`)
	overlaps   = regexp.MustCompile(`async|steps?[- ]off`)
	together   = regexp.MustCompile(`co-?locat`)
	apart      = regexp.MustCompile(`(?:non-|not |un)co-?locat|separate|disaggregat`)
	anyNumber  = regexp.MustCompile(`\d+(?:\.\d+)?`)
	groupsOf   = regexp.MustCompile(`(\d+) (?:groups|prompts) of (\d+)`)
	perEngine  = regexp.MustCompile(`(?:at most )?(\d+) running (?:an|per) (?:engine|replica|server)|(\d+) (?:an|per) (?:engine|replica|server)|max_num_seqs[ =:]+(\d+)|max_running_requests[ =:]+(\d+)`)
	workers    = regexp.MustCompile(`(\d+) (?:generation workers|clients|at once|(?:rollouts|sequences|requests) at once|concurrent)`)
	every      = regexp.MustCompile(`every (\d+) (?:(?:optimizer|training|trainer) )?(?:update|step|mini-batch)`)
	older      = regexp.MustCompile(`(?:older than|at most|within|up to|\beta|max_trajectory_age_steps|allowance|max_off_policy_threshold|max_off_policy_steps|max_head_offpolicyness|max_async_level|async_level|max_staleness_steps|max_staleness)(?: of|:|=)? ?(\d+)`)
	stepsOff   = regexp.MustCompile(`(\d+)[- ]steps?[- ]off`)
	shareOf    = regexp.MustCompile(`staleness_threshold[ =:]+(\d+(?:\.\d+)?)`)
	oneByte    = regexp.MustCompile(`fp8|int8|8-bit|e4m3|w8a`)
	halfByte   = regexp.MustCompile(`mxfp4|nvfp4|int4|fp4|4-bit|w4a|awq|gptq`)
)

// read says what the words of a row mean. Unknown words leave a rule at what is usual.
func (r Row) rules() rules {
	schedule, sync, types := strings.ToLower(r.Schedule), strings.ToLower(r.Sync), strings.ToLower(r.TrainDType)
	out := rules{syncEvery: 1, rolloutBytes: bytesOf(r.RolloutDType), trainBytes: bytesOf(r.TrainDType)}
	switch {
	case strings.Contains(schedule, "trainer alone"):
		out.kind = kindTrain
	case strings.Contains(schedule, "sync alone"):
		out.kind = kindSync
	case strings.Contains(schedule, "serving only"), strings.Contains(schedule, "multi-turn rollouts"), strings.Contains(schedule, "agents,"), r.Family == "routing":
		out.kind = kindServe
	}
	out.async = overlaps.MatchString(schedule)
	if !apart.MatchString(schedule) {
		twice := r.TrainGPUs > 0 && r.RolloutGPUs > 0 && r.TrainGPUs+r.RolloutGPUs > r.GPUs
		out.shared = together.MatchString(schedule) || twice && (!out.async || r.GPUs > 0)
	}
	out.helping = out.async && !out.shared && (strings.Contains(schedule, "help generat") || switched.MatchString(schedule))
	out.fsdp = strings.Contains(types, "fsdp")
	out.offloaded = strings.Contains(types, "offload")
	words := strings.ToLower(strings.Join([]string{r.Fields["note"], r.TrainDType, r.Schedule}, "; "))
	out.lora = strings.Contains(words, "lora") && !strings.Contains(words, "no lora") && !strings.Contains(words, "without lora")
	out.supervised = supervised.MatchString(r.Fields["note"] + " " + r.Schedule)
	out.sharded = strings.Contains(sync, "reshard") || strings.Contains(sync, "by shard") || strings.Contains(sync, "expert blocks")
	out.buckets = strings.Contains(sync, "bucket")
	out.inFlight = strings.Contains(strings.ToLower(r.StalenessRule), "in_flight_weight_updates true") || strings.Contains(sync, "in flight")
	if found := every.FindStringSubmatch(sync); found != nil && !strings.Contains(sync, "mini-batch") {
		out.syncEvery = max(atof(found[1]), 1)
	}
	out.pieces = 1
	if strings.Contains(schedule, "streamed") {
		out.pieces = max(r.OptimizerSteps, 1)
	}
	if out.async {
		out.ahead = r.ahead(float64(out.pieces))
	}
	out.inFlightRollouts = r.atOnce()
	return out
}

// ahead is how many batches may be generated ahead. Rules count versions, of which a batch has as many as
// it is trained in pieces; staleness_threshold is verl's, a share of the batch itself.
func (r Row) ahead(pieces float64) float64 {
	words := strings.ToLower(r.StalenessRule + " " + r.Schedule)
	if found := shareOf.FindStringSubmatch(words); found != nil {
		return atof(found[1])
	}
	for _, rule := range []*regexp.Regexp{older, stepsOff} {
		if found := rule.FindStringSubmatch(words); found != nil {
			return atof(found[1]) / pieces
		}
	}
	return 1 / pieces
}

// atOnce is how many rollouts run at once, 0 where the row does not say.
func (r Row) atOnce() int {
	words := strings.ToLower(r.Concurrency)
	if found := groupsOf.FindStringSubmatch(words); found != nil {
		return int(atof(found[1]) * atof(found[2]))
	}
	if found := perEngine.FindStringSubmatch(words); found != nil {
		return int(atof(strings.Join(found[1:], ""))) * r.replicas()
	}
	if found := workers.FindStringSubmatch(words); found != nil {
		return int(atof(found[1]))
	}
	return 0
}

// replicas is how many engines there are, at least 1.
func (r Row) replicas() int {
	if r.RolloutReplicas > 0 {
		return r.RolloutReplicas
	}
	return max(r.RolloutGPUs/r.engineGPUs(), 1)
}

// engineGPUs are those that hold one copy of the model: tensor parallel ones, or those that share
// its experts.
func (r Row) engineGPUs() int { return max(r.RolloutTP, r.RolloutEP, 1) }

// bytesOf is the bytes of a weight of that type; bf16 where none is said.
// Words after a comma or "with" are of caches and optimizers.
func bytesOf(dtype string) float64 {
	weights, _, _ := strings.Cut(strings.ToLower(dtype), ",")
	weights, _, _ = strings.Cut(weights, " with ")
	switch {
	case halfByte.MatchString(weights):
		return 0.53
	case oneByte.MatchString(weights):
		return 1
	}
	return 2
}

// atof reads digits that a pattern has matched.
func atof(digits string) float64 {
	v, _ := strconv.ParseFloat(anyNumber.FindString(digits), 64)
	return v
}
