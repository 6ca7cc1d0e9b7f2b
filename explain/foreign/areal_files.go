package foreign

import (
	"context"
	"encoding/json"
)

// arealSession is a line of the session tracer. Times are Unix seconds.
type arealSession struct {
	TaskID    json.Number `json:"task_id"`
	Status    string      `json:"status"`
	SubmitTS  *float64    `json:"submit_ts"`
	RewardS   float64     `json:"reward_s"`
	ToolcallS float64     `json:"toolcall_s"`
	Phases    map[string][]struct {
		StartTS float64  `json:"start_ts"`
		EndTS   *float64 `json:"end_ts"`
	} `json:"phases"`
	FinalizedTS *float64 `json:"finalized_ts"`
}

// readArealSessions takes accepted rollouts with their times.
func readArealSessions(ctx context.Context, file string, taker Taker) error {
	return eachJSON(ctx, file, taker, func(line []byte, number int64) error {
		var s arealSession
		if err := json.Unmarshal(line, &s); err != nil || s.SubmitTS == nil {
			return errJSON
		}
		if s.Status != "accepted" {
			return nil
		}
		end := *s.SubmitTS
		for _, spans := range s.Phases {
			for _, span := range spans {
				if span.EndTS != nil {
					end = max(end, *span.EndTS)
				}
			}
		}
		if end == *s.SubmitTS && s.FinalizedTS != nil {
			end = *s.FinalizedTS
		}
		taker.Rollout(Rollout{Group: s.TaskID.String(), StartS: Figure{*s.SubmitTS, Logged, "submit_ts"}, EndS: Figure{end, Inferred, "the end of the last phase"},
			EnvironmentS: Figure{s.RewardS + s.ToolcallS, Logged, "reward_s + toolcall_s"}})
		return nil
	})
}

// arealTrajectory is a line of a dumped task.
type arealTrajectory struct {
	TaskID      json.Number `json:"task_id"`
	Seqlen      float64     `json:"seqlen"`
	PromptLen   float64     `json:"prompt_len"`
	HeadVersion *float64    `json:"head_version"`
	TailVersion *float64    `json:"tail_version"`
	Reward      *float64    `json:"reward"`
}

// readArealDump takes rollouts with the versions of their tokens. A version of -1 is of no token.
func readArealDump(ctx context.Context, file string, taker Taker) error {
	return eachJSON(ctx, file, taker, func(line []byte, number int64) error {
		var d arealTrajectory
		if err := json.Unmarshal(line, &d); err != nil || d.HeadVersion == nil || d.TailVersion == nil {
			return errJSON
		}
		if *d.HeadVersion < 0 {
			return nil
		}
		r := Rollout{Group: d.TaskID.String(), Start: Figure{*d.HeadVersion, Logged, "head_version"}, End: Figure{*d.TailVersion, Logged, "tail_version"},
			Tokens: Figure{d.Seqlen - d.PromptLen, Inferred, "seqlen − prompt_len"}}
		if d.Reward != nil {
			r.Reward = Figure{*d.Reward, Logged, "reward"}
		}
		taker.Rollout(r)
		return nil
	})
}

// eachJSON hands the lines of a file of JSON lines to a function that says errJSON of those that are none.
func eachJSON(ctx context.Context, file string, taker Taker, take func(line []byte, number int64) error) error {
	return Lines(ctx, file, taker, func(line []byte, number int64, whole bool) error {
		if len(line) == 0 {
			return nil
		}
		err := take(line, number)
		switch {
		case err == errJSON && !whole:
			taker.Warn(file, number, "the last line is cut off; left out")
		case err == errJSON:
			taker.Warn(file, number, "a line is not what such a file has; left out")
		case err != nil:
			return err
		}
		return nil
	})
}

// passOver reads nothing of a file that is no part of the log of training.
func passOver(context.Context, string, Taker) error { return nil }
