package config

import "net/url"

// Sinks says where a run's figures go beside its own metrics.jsonl. A sink never holds a run up: figures that it does not take in time are dropped and counted.
type Sinks struct {
	// TensorBoard writes an event file that TensorBoard reads. Default none.
	TensorBoard TensorBoard `json:"tensorboard,omitempty"`
	// MLflow logs a run to an MLflow tracking server. Default none.
	MLflow MLflow `json:"mlflow,omitempty"`
	// Command is a program and its arguments that reads a JSON object a line for every train step, such as python -m headway.figures --wandb PROJECT. Default none.
	Command []string `json:"command,omitempty"`
	// Spans are sent to an OpenTelemetry collector, of a share of the rollouts. Default none.
	Spans Spans `json:"spans,omitempty"`
}

// TensorBoard says where event files go.
type TensorBoard struct {
	// Dir is the log directory; the run's file goes into a directory of the run's name in it. Default none.
	Dir string `json:"dir,omitempty"`
}

// MLflow says which tracking server a run is logged to.
type MLflow struct {
	// URL of the tracking server. Default none.
	URL string `json:"url,omitempty"`
	// Experiment by its name, made if it is not there. Default headway.
	Experiment string `json:"experiment,omitempty"`
	// TokenFile holds a secret that the server is sent as a bearer token. Default none.
	TokenFile string `json:"token_file,omitempty"`
}

// Spans says which rollouts an OpenTelemetry collector is told of.
type Spans struct {
	// URL of the collector's OTLP receiver over HTTP, such as http://collector:4318. Default none.
	URL string `json:"url,omitempty"`
	// Share of the groups whose rollouts are sent. Default 0.01.
	Share float64 `json:"share,omitempty" above:"0" max:"1"`
	// TokenFile holds a secret that the collector is sent as a bearer token. Default none.
	TokenFile string `json:"token_file,omitempty"`
}

// sinkDefaults fills in what sinks are told.
func (c *Config) sinkDefaults() {
	if c.Sinks.MLflow.URL != "" {
		orWord(&c.Sinks.MLflow.Experiment, "headway")
	}
	if c.Sinks.Spans.URL != "" {
		orNumber(&c.Sinks.Spans.Share, 0.01, c.given("sinks.spans.share"))
	}
}

// sinks checks the relations between the keys of sinks.
func (v *validator) sinks() {
	s := &v.config.Sinks
	for _, of := range []struct{ key, text string }{{"sinks.mlflow.url", s.MLflow.URL}, {"sinks.spans.url", s.Spans.URL}} {
		if of.text == "" {
			continue
		}
		if wrong := environmentURL(of.text); wrong != "" {
			v.fail(of.key, of.text, wrong, "http://HOST:PORT or https://HOST")
		} else if u, _ := url.Parse(of.text); u.RawQuery != "" || u.Fragment != "" {
			v.fail(of.key, of.text, "has a query", "http://HOST:PORT or https://HOST")
		}
	}
	for _, of := range []struct{ key, text, needs, url string }{
		{"sinks.mlflow.experiment", s.MLflow.Experiment, "sinks.mlflow.url", s.MLflow.URL},
		{"sinks.mlflow.token_file", s.MLflow.TokenFile, "sinks.mlflow.url", s.MLflow.URL},
		{"sinks.spans.token_file", s.Spans.TokenFile, "sinks.spans.url", s.Spans.URL},
	} {
		if of.text != "" && of.url == "" {
			v.fail(of.key, of.text, "has no effect without "+of.needs, of.needs+" beside it, or nothing")
		}
	}
	if len(s.Command) > 0 && s.Command[0] == "" {
		v.fail("sinks.command", s.Command, "names no program", "a program and its arguments")
	}
}
