package plan

import "testing"

// Every fault comes over a host of its plan, and each part of the draw is met.
func TestDraw(t *testing.T) {
	met := map[string]int{}
	for seed := range uint64(500) {
		p := Draw(seed)
		if err := p.Check(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		for _, f := range p.Faults {
			met[f.Kind]++
			if f.Await.Asks != "" {
				met["while "+f.Await.Asks]++
			}
		}
		for part, drawn := range map[string]bool{
			"ranks": p.Trainer.Ranks > 1, "acks": p.Trainer.Acks, "back": p.Trainer.Back > 0, "references": p.Trainer.References, "cells": len(p.Cells()) > 0, "ahead": p.Trainer.Ahead, "window": p.Trainer.Window > 0,
			"redundancy": p.Rules.Redundancy > 0, "cache aware": p.Rules.CacheAware,
		} {
			if drawn {
				met[part]++
			}
		}
	}
	for _, part := range []string{"ranks", "cells", "acks", "back", "window", "redundancy", "cache aware", Stop, "while weights", "while receivers loaded"} {
		if met[part] < 5 {
			t.Errorf("%s is met %d times: %v", part, met[part], met)
		}
	}
}

// A plane's players begin rollouts as fast as slots are free: where the queue drops what has no room, these seeds made so
// many that the world was out of memory.
func TestPlayersDoNotFillTheWorld(t *testing.T) {
	for _, seed := range []uint64{14733, 81810, 84899} {
		if p := Draw(seed); p.Chat == nil || p.Chat.Players > 0 {
			t.Errorf("chats of seed %d are %+v", seed, p.Chat)
		}
	}
	players := 0
	for seed := range uint64(500) {
		if p := Draw(seed); p.Chat != nil && p.Chat.Players > 0 {
			players++
		}
	}
	if players < 10 {
		t.Errorf("%d of 500 worlds have players", players)
	}
}
