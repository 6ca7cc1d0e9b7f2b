package schedule

// Parts is what one batch's time is made of, in seconds: StepS is the sum of the
// others, Overlap and SyncOverlap subtracted.
type Parts struct {
	StepS float64 `json:"step_s"`
	// WorkS is the generation of the trained tokens with every slot busy, WasteS that of tokens that were never
	// trained. TailS is the time of generation beyond both, because slots are empty and resumed rollouts fill their
	// cache again.
	WorkS  float64 `json:"work_s"`
	WasteS float64 `json:"waste_s"`
	TailS  float64 `json:"tail_s"`
	// TrainS is the update, LogProbS the recomputation of old log-probs, SyncS weight syncs, or the time to hand shared
	// GPUs over.
	TrainS   float64 `json:"train_s"`
	LogProbS float64 `json:"log_prob_s"`
	SyncS    float64 `json:"sync_s"`
	// IdleS is the time in which nothing runs.
	IdleS float64 `json:"idle_s"`
	// OverlapS is the time that rollouts and training share, SyncOverlapS that of a sync and
	// either of them.
	OverlapS     float64 `json:"overlap_s"`
	SyncOverlapS float64 `json:"sync_overlap_s"`
}

// parts divides the window by its batches.
func (w *watch) parts(in Input, a Arm, logShare float64) Parts {
	batch := 1e9 * float64(in.Batches)
	span := float64(w.end - w.start)
	// The time of one token with every slot busy.
	h := in.holders()
	token := in.WorkS(a.RolloutGPUs) / (float64(h.batch) * h.lengths.Mean())
	p := Parts{
		StepS:    span / batch,
		WorkS:    token * float64(w.sampledTokens-w.wastedTokens) / float64(in.Batches),
		WasteS:   token * float64(w.wastedTokens) / float64(in.Batches),
		TrainS:   (1 - logShare) * float64(w.trained) / batch,
		LogProbS: logShare * float64(w.trained) / batch,
		SyncS:    float64(w.synced) / batch,
		IdleS:    (span - float64(w.union)) / batch,
	}
	p.TailS = float64(w.generating)/batch - p.WorkS - p.WasteS
	p.SyncOverlapS = float64(w.syncBeside) / batch
	p.OverlapS = p.WorkS + p.WasteS + p.TailS + p.TrainS + p.LogProbS + p.SyncS + p.IdleS - p.SyncOverlapS - p.StepS
	return p
}

// Effect is one reason of a gain.
type Effect struct {
	// Name of the effect.
	Name string `json:"name"`
	// S is what it saves a batch, in seconds; negative where it costs.
	S float64 `json:"s"`
}

// Effects of one schedule over another.
const (
	EffectBarrier     = "barrier removed or hidden"
	EffectOverlap     = "rollouts overlapped with training"
	EffectLogProbs    = "old log-probs not recomputed"
	EffectSplit       = "GPUs split between the sides"
	EffectSync        = "weight sync for handing GPUs over"
	EffectSyncOverlap = "weight sync overlapped"
	EffectWaste       = "rollouts never trained"
)

// hidden divides the overlap by what training hides: work first, of which there
// would be as much without a barrier, then the tail, then waste.
func (p Parts) hidden() (work, tail, waste float64) {
	work = min(p.OverlapS, p.WorkS)
	tail = min(p.OverlapS-work, max(p.TailS, 0))
	return work, tail, p.OverlapS - work - tail
}

// Gain splits the difference of two schedules' step times into effects: the parts
// of the base's time that the other saves. They add up to base.StepS − p.StepS.
func (p Parts) Gain(base Parts) []Effect {
	work, tail, waste := p.hidden()
	baseWork, baseTail, baseWaste := base.hidden()
	return []Effect{
		{EffectBarrier, (base.TailS - baseTail) - (p.TailS - tail)},
		{EffectOverlap, work - baseWork + base.IdleS - p.IdleS},
		{EffectLogProbs, base.LogProbS - p.LogProbS},
		{EffectSplit, base.WorkS + base.TrainS - p.WorkS - p.TrainS},
		{EffectSync, base.SyncS - p.SyncS},
		{EffectSyncOverlap, p.SyncOverlapS - base.SyncOverlapS},
		{EffectWaste, (base.WasteS - baseWaste) - (p.WasteS - waste)},
	}
}
