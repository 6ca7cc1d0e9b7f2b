package report

// Arms is a comparison of settings on one task: every arm runs once per seed,
// all for the same wall time. It is what the comparison page, table and document
// are made of: see [ArmsHTML], [ArmsText] and [Compare].
type Arms struct {
	// Title names the comparison.
	Title string
	// Summary says in a sentence or two what was compared, on what task and machine.
	Summary string
	// WallS is the wall time every run was given, in seconds.
	WallS float64
	// Settings are those common to all arms, in order.
	Settings []Row
	// Arms in the order in which they are to be listed; the first is what others are compared with.
	Arms []Arm
	// Notes are findings and warnings, one sentence each.
	Notes []string
}

// Arm is one setting of the comparison, run with several seeds.
type Arm struct {
	// Name of the arm, such as its preset.
	Name string
	// Note describes the arm and its difference, in a sentence; "" for nothing.
	Note string
	// Settings are the keys in which it differs from the others.
	Settings []Row
	// Runs holds one run a seed. All arms should have the same seeds.
	Runs []ArmRun
}

// ArmRun is one run of one arm. A figure that was not measured is [Unknown]:
// zero is a figure.
type ArmRun struct {
	// Seed of the run.
	Seed uint64
	// Failed says why the run ended before its time, "" if it did not. Its figures are
	// listed, but enter no mean.
	Failed string
	// WallS is how long it really ran, in seconds.
	WallS float64
	// Steps is how many train steps it did, Tokens how many response tokens it trained.
	Steps, Tokens float64
	// Accuracy is the held-out accuracy at the end, Reward the mean reward of the last
	// tenth of its train steps.
	Accuracy, Reward float64
	// Staleness is the mean over trained groups in versions, StalenessP95 its 95 % quantile.
	Staleness, StalenessP95 float64
	// WastedShare is the share of response tokens made that were never trained.
	WastedShare float64
	// TrainerIdle and RolloutIdle are the shares of wall time in which the trainer
	// waited and slots were empty.
	TrainerIdle, RolloutIdle float64
	// ClipFraction is the share of tokens whose importance ratio left the band.
	ClipFraction float64
	// LengthRatio is the mean length of trained responses over that of started ones.
	LengthRatio float64
	// Curve is how it learned, in order of time.
	Curve []ArmPoint
}

// ArmPoint is one point of a learning curve. A figure that was not measured there is [Unknown].
type ArmPoint struct {
	// TimeS is wall time since the run started, in seconds; Step the train steps done by then.
	TimeS float64
	Step  int64
	// Accuracy is held-out, Reward the mean of the batches since the point before.
	Accuracy, Reward float64
}
