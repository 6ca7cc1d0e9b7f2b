package probe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/predict/doctor"
)

// probeLimit is how long doctor waits for one server's answers.
const probeLimit = 30 * time.Second

// ExamineServers adds to a case what the model's directory and the engines' servers say of themselves.
// Without probing no server is asked.
func ExamineServers(ctx context.Context, document config.Config, probe bool, examined *doctor.Case) {
	if !document.External() {
		return
	}
	examined.Model = examineModel(document)
	if !probe || document.Elastic() { // a fleet's engines are not there yet
		return
	}
	examined.Scorers = askScorers(ctx, document, examined.Model.Vocabulary)
	examined.Servers = make([]doctor.Server, len(document.Engines))
	var all sync.WaitGroup
	for i, e := range document.Engines {
		ask := askServer
		if document.Tinker() {
			ask = askService
		}
		all.Go(func() { examined.Servers[i] = ask(ctx, document, e) })
	}
	all.Wait()
}

// examineModel reads model.path as a control plane would.
func examineModel(document config.Config) *doctor.Model {
	read := parts.ModelOf
	if document.Tinker() {
		read = parts.ShapeOf
	}
	checkpoint, err := read(document)
	if err != nil {
		return &doctor.Model{Err: err.Error()}
	}
	if document.Tinker() && len(checkpoint.Ends) == 0 {
		return &doctor.Model{Err: parts.Endless}
	}
	m := &doctor.Model{Vocabulary: checkpoint.Vocabulary, Context: checkpoint.Context}
	limits, err := parts.ServedLimits(document, checkpoint.Context)
	if err != nil {
		m.LimitsErr = problemOf(err)
	}
	m.PromptTokens, m.ResponseTokens = limits.PromptTokens, limits.ResponseTokens
	return m
}

// problemOf is what is wrong with a document, without the place and what is allowed.
func problemOf(err error) string {
	if placed, is := errors.AsType[*config.Error](err); is {
		return placed.Key + " " + placed.Problem
	}
	return err.Error()
}

// askServer asks one engine's server what it can.
func askServer(ctx context.Context, document config.Config, e config.Engine) doctor.Server {
	server, err := parts.ServerOf(e)
	if err != nil {
		return doctor.Server{Err: err.Error()}
	}
	defer server.Close()
	server.Guest = true                 // a run may be using it
	model, _ := parts.ModelOf(document) // said where the model is examined
	parts.AskChannels(server, document, model)
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	dialect, err := parts.DialectOf(e, nil)
	if err != nil {
		return doctor.Server{Err: err.Error()}
	}
	caps, err := dialect.Probe(ctx, server)
	if err != nil {
		return doctor.Server{Err: err.Error(), Other: errors.Is(err, upstream.ErrKind)}
	}
	return examinedServer(caps, upstream.Delivery(e.Weights))
}

// askService asks a service of Tinker's API which base models it has.
func askService(ctx context.Context, _ config.Config, e config.Engine) doctor.Server {
	o, err := parts.ServiceOf(e)
	if err != nil {
		return doctor.Server{Err: err.Error()}
	}
	bases, err := parts.BasesOf(ctx, o)
	if err != nil {
		return doctor.Server{Err: err.Error(), Other: parts.Unwelcome(err, false)}
	}
	if _, problem, allowed := parts.BaseOf(e, bases); problem != "" {
		return doctor.Server{Err: fmt.Sprintf("served_model %s (it has %s)", problem, allowed), Other: true}
	}
	return doctor.Server{}
}

func examinedServer(caps upstream.Capabilities, delivery upstream.Delivery) doctor.Server {
	s := doctor.Server{Vocabulary: caps.Vocabulary, Context: caps.Context, Processed: caps.ProcessedLogprobs, Salt: caps.Salt, Flush: caps.Flush, Template: caps.Template, Slots: caps.Slots, Uncached: caps.Uncached}
	for _, m := range caps.Lacks(delivery) {
		s.Lacks = append(s.Lacks, doctor.Lack{What: m.What, Flag: m.Flag, Fatal: m.Fatal})
	}
	return s
}
