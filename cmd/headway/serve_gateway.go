package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/headway-rl/headway/api/gateway"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/upstream"
)

// afterRollouts is how much longer the gateway waits for a token than the rollouts do, which know why none comes.
const afterRollouts = 10 * time.Second

// buildGateway makes rollouts of agents that speak OpenAI's API, where rollouts are played by workers.
func (p *plane) buildGateway() error {
	if p.workers == nil {
		return nil
	}
	g := p.cfg.Gateway
	opt := gateway.Options{
		Rollouts: p.workers, Model: p.cfg.EnvironmentName(), Tools: g.Tools, ClientSampling: g.ClientSampling, Wait: lasting(g.WaitS) + afterRollouts, Logf: p.say,
	}
	if limits := p.limits(); limits.PromptTokens > 0 && limits.ResponseTokens > 0 {
		opt.Context, opt.PromptTokens = limits.PromptTokens+limits.ResponseTokens, limits.PromptTokens
	}
	if p.policy == nil {
		opt.Templates = letterTemplate{p.task.Vocabulary()}
	} else {
		opt.Model = p.modelName()
		var err error
		if opt.Templates, err = p.chatTemplates(); err != nil {
			return err
		}
	}
	var err error
	if p.gateway, err = gateway.New(opt); err != nil {
		return err
	}
	p.onClose(p.gateway.Close)
	return nil
}

// chatTemplates render chats by a server, or refuse them where there is none that could.
func (p *plane) chatTemplates() (gateway.Templates, error) {
	if p.hosted != nil && p.cfg.Gateway.Template == "" {
		return noTemplate{}, nil
	}
	templates, err := p.templates()
	if err != nil {
		return nil, err
	}
	return patientTemplate{serverTemplate{templates}, lasting(p.cfg.Gateway.WaitS), p.suspect}, nil
}

// modelName is what agents see the policy under: the name that the engines know it by, or its directory's.
func (p *plane) modelName() string {
	for _, e := range p.cfg.Engines {
		if e.ServedModel != "" {
			return e.ServedModel
		}
	}
	if p.hosted != nil {
		return p.hosted.base
	}
	if name := filepath.Base(p.cfg.Model.Path); name != "." && name != string(filepath.Separator) {
		return name
	}
	return p.cfg.EnvironmentName()
}

// templates render chats by the engines that can, or by the server that the document names.
func (p *plane) templates() (*upstream.Templates, error) {
	if p.cfg.Gateway.Template == "" {
		return upstream.NewTemplates(upstream.TemplatesOptions{Engines: p.servers, Away: p.awayOf})
	}
	e := config.Engine{Kind: "vllm", Name: "gateway.template", URL: p.cfg.Gateway.Template, Slots: 1}
	server, err := serverOf(e)
	if err != nil {
		return nil, fmt.Errorf("gateway.template: %w", err)
	}
	p.renderer, err = upstream.New(upstream.Options{Name: e.Name, Slots: e.Slots, Server: server, Dialect: dialectOf(e, p.say), Vocabulary: p.vocabulary(), Logf: p.say})
	if err != nil {
		return nil, err
	}
	p.onClose(p.renderer.Close)
	return upstream.NewTemplates(upstream.TemplatesOptions{Engines: []*upstream.Engine{p.renderer}})
}
