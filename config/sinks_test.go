package config

import (
	"strings"
	"testing"
)

func TestSinks(t *testing.T) {
	good, err := Parse("a.yaml", []byte(`sinks: {mlflow: {url: "http://a:5000"}, spans: {url: "http://b:4318"}, tensorboard: {dir: tb}}`))
	if err == nil {
		good, err = good.Resolve()
	}
	if err != nil || good.Sinks.MLflow.Experiment != "headway" || good.Sinks.Spans.Share != 0.01 {
		t.Errorf("resolved to %+v, %v", good.Sinks, err)
	}
	for document, want := range map[string]string{
		`sinks: {mlflow: {url: "a:5000"}}`:                   "sinks.mlflow.url",
		`sinks: {mlflow: {url: "http://u:p@a"}}`:             "password",
		`sinks: {spans: {url: "http://a/?token=1"}}`:         "has a query",
		`sinks: {mlflow: {experiment: x}}`:                   "no effect without sinks.mlflow.url",
		`sinks: {spans: {url: "http://a", share: 0}}`:        "sinks.spans.share",
		`sinks: {command: [""]}`:                             "names no program",
		`sinks: {tensorbord: {dir: tb}}`:                     "did you mean tensorboard",
		`sinks: {spans: {url: "http://a", token_file: [1]}}`: "sinks.spans.token_file",
	} {
		bad, err := Parse("a.yaml", []byte(document))
		if err == nil {
			_, err = bad.Resolve()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", document, err, want)
		}
	}
}
