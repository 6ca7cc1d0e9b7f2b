package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// findingsPath is where a control plane that shows a dashboard says what it finds.
const findingsPath = "/api/v1/view/findings"

// ofPlane diagnoses a run by its control plane: what that finds itself, or what its status says.
func (c *diagnoseCmd) ofPlane(ctx context.Context, a *app.Process) (diagnosis.Report, error) {
	client, err := newStatusClient(a, &statusCmd{Server: c.Paths[0], TokenFile: c.TokenFile, CA: c.CA})
	if err != nil {
		return diagnosis.Report{}, err
	}
	status, _, err := client.get(ctx)
	if strange, is := errors.AsType[*failure.Error](err); is && strange.Code == failure.ExitUsage {
		return diagnosis.Report{}, err
	}
	found, ok, viewErr := client.findings(ctx)
	switch {
	case ok:
		found.Warnings = append(found.Warnings, "seen over HTTP: no change was resimulated; headway diagnose RUN reads the trace and does")
		return found, nil
	case err != nil:
		return diagnosis.Report{}, err
	case viewErr != nil:
		return diagnosis.Report{}, viewErr
	}
	return ofStatus(status), nil
}

// findings asks for what the control plane finds itself; ok is false where it does not say.
func (c *statusClient) findings(ctx context.Context) (r diagnosis.Report, ok bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.JoinPath(findingsPath).String(), nil)
	if err != nil {
		return r, false, err
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return r, false, c.unreachable(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return r, false, nil
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, statusBytesMax))
	if err != nil {
		return r, false, c.unreachable(err)
	}
	if json.Unmarshal(text, &r) != nil || r.Source == "" {
		return diagnosis.Report{}, false, nil
	}
	return r, true, nil
}

// ofStatus is what a status alone lets one say.
func ofStatus(s protocol.Status) diagnosis.Report {
	r := diagnosis.Report{Run: s.Run, Source: "live", Compared: []diagnosis.Comparison{}, Findings: []diagnosis.Finding{}, Drift: []diagnosis.Drift{}}
	r.Settled.Why = "a status holds the last steps alone, and no series to tell by"
	r.Warnings = []string{"known over HTTP: the state now. Not known: times of single rollouts, so that nothing is split, fitted, predicted or resimulated; headway diagnose RUN reads the trace"}
	add := func(code, severity, title string, evidence ...string) {
		r.Findings = append(r.Findings, diagnosis.Finding{Code: code, Severity: severity, Title: title, Evidence: evidence})
	}
	if !s.Ledger.Balanced {
		add("ledger_unbalanced", "defect", "The ledger does not balance: rollouts were lost or counted twice.", fmt.Sprintf("%+v", s.Ledger.Ledger))
	}
	if s.Stall != nil {
		for _, found := range s.Stall.Findings {
			add("stall_"+found.Code, "defect", fmt.Sprintf("Nothing has made progress for %s s.", report.Figure(s.Stall.SinceS, 0)), found.Message)
		}
	}
	low, high, seen := int64(0), int64(0), false
	for _, e := range s.Engines {
		if e.State == "lost" || e.State == "down" {
			add("engines_lost", "warning", fmt.Sprintf("Engine %s is gone.", e.Name), "state "+e.State)
			continue
		}
		if v := int64(e.Version); !seen {
			low, high, seen = v, v, true
		} else {
			low, high = min(low, v), max(high, v)
		}
	}
	if high-low > 1 {
		add("version_skew", "warning", "Engines serve different versions.", fmt.Sprintf("from v%d to v%d", low, high))
	}
	if behind := int64(s.Version) - high; seen && behind > 1 {
		add("sync_behind", "warning", "No engine serves the newest versions.", fmt.Sprintf("the trainer is at v%d, the newest engine at v%d", s.Version, high))
	}
	ended := s.Ledger.Trained + s.Ledger.Evicted + s.Ledger.Discarded + s.Ledger.Filtered + s.Ledger.Pruned + s.Ledger.Cancelled + s.Ledger.Failed
	if wasted := ended - s.Ledger.Trained; ended > 0 && float64(wasted) > 0.1*float64(ended) {
		add("waste", "cost", report.Share(float64(wasted)/float64(ended))+" of the rollouts that ended were never trained on.",
			fmt.Sprintf("evicted %d, discarded %d, filtered %d, cancelled %d, failed %d of %d", s.Ledger.Evicted, s.Ledger.Discarded, s.Ledger.Filtered, s.Ledger.Cancelled, s.Ledger.Failed, ended))
	}
	if s.Trainer.IdleRatio > 0.15 {
		add("trainer_idle", "cost", "The trainer waits.", "idle "+report.Share(s.Trainer.IdleRatio)+"; "+s.Binding+" binds")
	}
	return r
}
