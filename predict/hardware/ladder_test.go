package hardware

// rung is one optimization of a sync, on top of those before it.
type rung struct {
	Name string
	// Published is τ_S relative to the naive broadcast, as the ladder is usually quoted for 70B in bf16.
	Published float64
	// Relative is ours for the given sync, on the critical path.
	Relative float64
	Times    SyncTimes
}

// ladder applies the optimizations of a weight sync to one, in the order they
// compose: naive broadcast, broadcast tree, bucket fusion, fp8 cast in flight,
// zero-copy, overlap. What the given sync already has is taken out first.
func ladder(s Sync) ([]rung, error) {
	s = s.WithDefaults()
	s.Fanout, s.BucketBytes, s.WireBytes, s.Overlapped = FanoutStar, 0, s.TrainBytes, false
	if s.StagingBytesPerS == 0 {
		s.StagingBytesPerS = 2 * s.NetworkBytesPerS
	}
	steps := []struct {
		name      string
		published float64
		apply     func(*Sync)
	}{
		{"naive broadcast", 1, func(*Sync) {}},
		{"broadcast tree", 0.55, func(s *Sync) { s.Fanout = FanoutTree }},
		{"bucket fusion", 0.45, func(s *Sync) { s.BucketBytes = gib }},
		{"fp8 cast in flight", 0.30, func(s *Sync) { s.WireBytes = 1 }},
		{"zero-copy", 0.22, func(s *Sync) { s.StagingBytesPerS = 0 }},
		{"overlapped", 0, func(s *Sync) { s.Overlapped = true }},
	}
	rungs := make([]rung, 0, len(steps))
	for _, step := range steps {
		step.apply(&s)
		times, err := s.Times()
		if err != nil {
			return nil, err
		}
		rungs = append(rungs, rung{Name: step.name, Published: step.published, Times: times})
	}
	for i := range rungs {
		rungs[i].Relative = rungs[i].Times.Critical / rungs[0].Times.Seconds
	}
	return rungs, nil
}
