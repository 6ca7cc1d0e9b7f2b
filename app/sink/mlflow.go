package sink

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// MLflowOptions say where a run is logged.
type MLflowOptions struct {
	// URL of the tracking server; Experiment by name, made if it is not there; Run is the run's name.
	URL, Experiment, Run string
	// Token is sent as a bearer token, empty for none.
	Token string
	// Params are what does not change, such as the document's keys; values are cut at 500 bytes.
	Params map[string]string
	// Logf says what the server does not take. Nil says nothing.
	Logf func(format string, args ...any)
	// Now is the clock that says when the run begins and ends.
	Now func() time.Time
}

// mlflow is a run of a tracking server.
type mlflow struct {
	opt   MLflowOptions
	began time.Time
	run   string
	// told: the parameters are logged, or cannot be.
	told bool
	// refused are names of figures that the server does not take.
	refused map[string]bool
}

// Bounds of one call of MLflow's REST API.
const (
	mlflowMetrics = 1000
	mlflowParams  = 100
	mlflowValue   = 500
	mlflowTimeout = 20 * time.Second
)

// MLflow is a sink into a run of an MLflow tracking server, by its REST API. The run is made with the first step: a
// server that is away then does not keep the run from beginning.
func MLflow(opt MLflowOptions) (Sink, error) {
	base, err := url.Parse(opt.URL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("sinks.mlflow.url: %q is not the address of a tracking server", opt.URL)
	}
	opt.URL = strings.TrimRight(opt.URL, "/") + "/api/2.0/mlflow/"
	return &mlflow{opt: opt, began: opt.Now()}, nil
}

func (m *mlflow) Name() string { return "mlflow" }

// mlflowError is what the server answers instead.
type mlflowError struct {
	status  int
	Code    string `json:"error_code"`
	Message string `json:"message"`
}

func (e *mlflowError) Error() string {
	return fmt.Sprintf("HTTP %d %s %.300s", e.status, e.Code, e.Message)
}

// call sends one request and reads its answer into out, unless that is nil.
func (m *mlflow) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, mlflowTimeout)
	defer cancel()
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, m.opt.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if m.opt.Token != "" {
		request.Header.Set("Authorization", "Bearer "+m.opt.Token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		said := &mlflowError{status: response.StatusCode}
		if json.Unmarshal(text, said) != nil {
			said.Message = string(text)
		}
		return said
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// experiment finds the experiment, or makes it.
func (m *mlflow) experiment(ctx context.Context) (string, error) {
	var found struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		} `json:"experiment"`
	}
	path := "experiments/get-by-name?experiment_name=" + url.QueryEscape(m.opt.Experiment)
	err := m.call(ctx, http.MethodGet, path, nil, &found)
	if said, is := errors.AsType[*mlflowError](err); !is || said.Code != "RESOURCE_DOES_NOT_EXIST" {
		return found.Experiment.ID, err
	}
	var made struct {
		ID string `json:"experiment_id"`
	}
	err = m.call(ctx, http.MethodPost, "experiments/create", map[string]string{"name": m.opt.Experiment}, &made)
	return made.ID, err
}

// begin makes the run, once.
func (m *mlflow) begin(ctx context.Context) error {
	if m.run != "" {
		return m.tell(ctx)
	}
	experiment, err := m.experiment(ctx)
	if err != nil {
		return errorOf("experiment "+m.opt.Experiment, err)
	}
	var made struct {
		Run struct {
			Info struct {
				ID string `json:"run_id"`
			} `json:"info"`
		} `json:"run"`
	}
	request := map[string]any{"experiment_id": experiment, "run_name": m.opt.Run, "start_time": m.began.UnixMilli()}
	if err := m.call(ctx, http.MethodPost, "runs/create", request, &made); err != nil {
		return errorOf("run "+m.opt.Run, err)
	}
	if made.Run.Info.ID == "" {
		return errors.New("the server made a run without an id: is it MLflow?")
	}
	m.run = made.Run.Info.ID
	return m.tell(ctx)
}

// tell logs the parameters, once. Parameters that the server refuses are said and left out: figures matter more.
func (m *mlflow) tell(ctx context.Context) error {
	if m.told {
		return nil
	}
	err := m.params(ctx, m.run)
	if said, is := errors.AsType[*mlflowError](err); is && said.status >= 400 && said.status < 500 {
		m.told = true
		if m.opt.Logf != nil {
			m.opt.Logf("mlflow: %v; the run there lacks parameters", err)
		}
		return nil
	}
	m.told = err == nil
	return err
}

// params logs what does not change.
func (m *mlflow) params(ctx context.Context, run string) error {
	type param struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	var all []param
	for key, value := range m.opt.Params {
		all = append(all, param{key, strings.ToValidUTF8(value[:min(len(value), mlflowValue)], "")})
	}
	for len(all) > 0 {
		n := min(len(all), mlflowParams)
		if err := m.call(ctx, http.MethodPost, "runs/log-batch", map[string]any{"run_id": run, "params": all[:n]}, nil); err != nil {
			return errorOf("parameters", err)
		}
		all = all[n:]
	}
	return nil
}

func (m *mlflow) Write(ctx context.Context, steps []Step) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	type metric struct {
		Key       string  `json:"key"`
		Value     float64 `json:"value"`
		Timestamp int64   `json:"timestamp"`
		Step      int64   `json:"step"`
	}
	var all []metric
	for _, s := range steps {
		for _, f := range s.Figures {
			if name := mlflowName(f.Name); !m.refused[name] {
				all = append(all, metric{name, f.Value, s.Time.UnixMilli(), s.Step})
			}
		}
	}
	send := func(some []metric) error {
		return m.call(ctx, http.MethodPost, "runs/log-batch", map[string]any{"run_id": m.run, "metrics": some}, nil)
	}
	for len(all) > 0 {
		n := min(len(all), mlflowMetrics)
		err := send(all[:n])
		if isRefusal(err) { // of some figure, which is not to keep the others back
			wrong := map[string]error{}
			for i := range n {
				switch one := send(all[i : i+1]); {
				case isRefusal(one):
					wrong[all[i].Key] = one
				case one != nil:
					return one
				default:
					err = nil
				}
			}
			if err != nil { // of all of them: it is not by their names
				return err
			}
			m.refuse(wrong)
		}
		if err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// isRefusal reports whether a server will never take what it was sent.
func isRefusal(err error) bool {
	said, is := errors.AsType[*mlflowError](err)
	return is && (said.status == http.StatusBadRequest || said.status == http.StatusRequestEntityTooLarge || said.status == http.StatusUnprocessableEntity)
}

// refuse leaves figures out from now on, and says so.
func (m *mlflow) refuse(wrong map[string]error) {
	if m.refused == nil {
		m.refused = map[string]bool{}
	}
	for name, why := range wrong {
		m.refused[name] = true
		if m.opt.Logf != nil {
			m.opt.Logf("mlflow: the figure %q is left out: %v", name, why)
		}
	}
}

// mlflowKey bounds names, in bytes.
const mlflowKey = 250

// mlflowName is a name as MLflow takes it: a path of letters, digits and _-. /: that leads nowhere else.
func mlflowName(name string) string {
	var parts []string
	for part := range strings.SplitSeq(mlflowLetters(name), "/") {
		switch part {
		case "", ".":
		case "..":
			parts = append(parts, "__")
		default:
			parts = append(parts, part)
		}
	}
	whole := strings.Join(parts, "/")
	return cmp.Or(strings.TrimRight(whole[:min(len(whole), mlflowKey)], "/"), "_")
}

func mlflowLetters(name string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_-. /:", c) {
			return c
		}
		return '_'
	}, name)
}

func (m *mlflow) Close(ctx context.Context, well bool) error {
	if m.run == "" {
		return nil
	}
	status := "FINISHED"
	if !well {
		status = "FAILED"
	}
	return m.call(ctx, http.MethodPost, "runs/update", map[string]any{"run_id": m.run, "status": status, "end_time": m.opt.Now().UnixMilli()}, nil)
}
