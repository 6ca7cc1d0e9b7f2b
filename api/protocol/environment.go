package protocol

// EnvironmentStatus is what a control plane's own players, sandboxes and verifier do.
type EnvironmentStatus struct {
	// Kind is the document's environment.kind.
	Kind string `json:"kind"`
	// Episodes are those that this process has played.
	Episodes Episodes `json:"episodes"`
	// Sandboxes is the pool; nil where nothing runs in a sandbox.
	Sandboxes *Sandboxes `json:"sandboxes,omitempty"`
	// Verifier is who judges; nil where the environment gives the rewards itself.
	Verifier *Verifier `json:"verifier,omitempty"`
	// Tasks is the number of prompts that the run trains on, 0 where they are no data.
	Tasks int `json:"tasks,omitempty"`
	// TaskCounts is what is known of single tasks; nil where prompts are no data.
	TaskCounts *TaskCounts `json:"task_counts,omitempty"`
}

// TaskCounts says how hard tasks were found to be, over all processes of the run.
type TaskCounts struct {
	// Played is the number of tasks that were played at all.
	Played int `json:"played"`
	// Levels has the sums over the tasks of each level, their Task empty. Hardest and Easiest are a few of those
	// that were judged often enough, the most extreme first.
	Levels  []TaskCount `json:"levels,omitempty"`
	Hardest []TaskCount `json:"hardest,omitempty"`
	Easiest []TaskCount `json:"easiest,omitempty"`
}

// TaskCount is what became of the attempts at a task, or at those of a level.
type TaskCount struct {
	Task  string `json:"task,omitempty"`
	Level int    `json:"level,omitempty"`
	// Attempts are all, Failed those without a reward, Solved those that were wholly right.
	Attempts int64 `json:"attempts"`
	Failed   int64 `json:"failed"`
	Solved   int64 `json:"solved"`
	// SolveRate and RewardMean are over attempts with a reward, 0 without any.
	SolveRate  float64 `json:"solve_rate"`
	RewardMean float64 `json:"reward_mean"`
	// Version is the newest policy version of any attempt.
	Version int64 `json:"version"`
}

// Episodes counts rollout attempts by how they ended, and says where their time went.
type Episodes struct {
	// Playing are under way.
	Playing int64 `json:"playing"`
	// Scored have a reward. Failed have none, by Failures' class. Unwanted were given up by the loop,
	// or by a process that stopped.
	Scored   int64 `json:"scored"`
	Failed   int64 `json:"failed"`
	Unwanted int64 `json:"unwanted"`
	// Turns of all of them, RewardSum of those that were scored.
	Turns     int64   `json:"turns"`
	RewardSum float64 `json:"reward_sum"`
	// Failures of attempts, and Limits of sandboxes that the policy's code met, by class.
	Failures map[string]int64 `json:"failures,omitempty"`
	Limits   map[string]int64 `json:"limits,omitempty"`
	// Parts are model, sandbox_wait, sandbox_start, tool, verifier_wait and verifier, as far as there were any.
	Parts []Spent `json:"parts,omitempty"`
	// Whole is their time from the first span's start to the last one's end.
	Whole Spent `json:"whole"`
}

// Spent is the time that episodes spent on one part, in seconds an episode.
type Spent struct {
	Part string `json:"part,omitempty"`
	// Episodes had this part.
	Episodes int64   `json:"episodes"`
	MeanS    float64 `json:"mean_s"`
	P50S     float64 `json:"p50_s"`
	P99S     float64 `json:"p99_s"`
	TotalS   float64 `json:"total_s"`
}

// Sandboxes is a pool of them.
type Sandboxes struct {
	Driver string `json:"driver"`
	// Secure: untrusted code may run in them. Lacks says what is missing, empty for nothing.
	Secure bool   `json:"secure"`
	Lacks  string `json:"lacks,omitempty"`
	// Leased, Warm, Starting and Ending are sandboxes, Waiting leases without one, WarmWanted how many
	// are to stand ready.
	Leased     int `json:"leased"`
	Warm       int `json:"warm"`
	Starting   int `json:"starting"`
	Ending     int `json:"ending"`
	Waiting    int `json:"waiting"`
	WarmWanted int `json:"warm_wanted"`
	// Created and Reused were handed out, Hits of them stood ready. Orphans of an earlier process were removed.
	Created int64 `json:"created"`
	Reused  int64 `json:"reused"`
	Hits    int64 `json:"hits"`
	Orphans int64 `json:"orphans"`
	// Failures by class.
	Failures map[string]int64 `json:"failures,omitempty"`
	// Broken: no start is tried for the moment, since too many have failed.
	Broken bool `json:"broken"`
	// StartS and WaitS are the times that starts and leases took, in seconds.
	StartS Quantiles `json:"start_s"`
	WaitS  Quantiles `json:"wait_s"`
}

// Verifier is who judges rollouts.
type Verifier struct {
	Kind string `json:"kind"`
	// Waiting rollouts have no verdict yet, and their turn has not come. Judging ones have their turn.
	Waiting  int   `json:"waiting"`
	Running  int   `json:"running"`
	Verdicts int64 `json:"verdicts"`
	Retries  int64 `json:"retries"`
	// Failures by class.
	Failures map[string]int64 `json:"failures,omitempty"`
	// WaitS and VerdictS are the times of the last cases, in seconds.
	WaitS    Quantiles `json:"wait_s"`
	VerdictS Quantiles `json:"verdict_s"`
}

// Quantiles of a time in seconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}
