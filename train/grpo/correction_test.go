package grpo

import (
	"math"
	"strings"
	"testing"
)

func TestCorrectionIsSaneAtZero(t *testing.T) {
	c := Correction{}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if c = c.WithDefaults(); c.Kind != PPOClip || c.EpsilonLow != 0.2 || c.EpsilonHigh != 0.2 || c.VersionMask != VersionsAll {
		t.Errorf("the zero value means %+v", c)
	}
	if c != c.WithDefaults() {
		t.Error("defaults applied twice differ")
	}
	for _, k := range Kinds() {
		if err := (Correction{Kind: k}).WithDefaults().Validate(); err != nil {
			t.Errorf("%s with its defaults: %v", k, err)
		}
	}
}

func TestCorrectionRefuses(t *testing.T) {
	for want, c := range map[string]Correction{
		`kind is "ppo"`:                           {Kind: "ppo"},
		"low epsilon is 1.5":                      {EpsilonLow: 1.5},
		"low epsilon is NaN":                      {EpsilonLow: math.NaN()},
		"high epsilon is -1":                      {EpsilonHigh: -1},
		`version mask is "old"`:                   {VersionMask: "old"},
		"version lag is -1":                       {VersionMask: VersionsNewest, VersionLag: -1},
		"without a version mask":                  {VersionLag: 2},
		`level is "word"`:                         {Kind: TIS, Level: "word"},
		"floor 0 and cap NaN":                     {Kind: TIS, Cap: math.NaN()},
		"the floor of weights is 3":               {Kind: TIS, Floor: 3},
		"there is no cap":                         {Kind: DecoupledPPO, DropOverCap: true},
		`metric is "l2"`:                          {Kind: SequenceMask, Metric: "l2"},
		"largest KL is -1":                        {Kind: SequenceMask, Metric: MetricKL, MaxKL: -1},
		"ratios from 1.5 to 5":                    {Kind: TokenMask, Low: 1.5},
		"ratios from 0.5 to 0.9":                  {Kind: TokenMask, High: 0.9},
		"ppo-clip does not use the floor and cap": {Cap: 2},
		"tis does not use the bounds of ratios":   {Kind: TIS, Low: 0.5},
		"cispo does not use the level":            {Kind: CISPO, Level: LevelToken},
		"token-mask does not use the metric":      {Kind: TokenMask, NegativeOnly: true},
		"there is no floor":                       {Kind: DecoupledPPO, DropUnderFloor: true},
		"differences of probabilities from −1.5":  {Kind: DPPO, DifferenceLow: 1.5},
		"the penalty on log-ratios is -1":         {Kind: DPPO, Penalty: -1},
		"tis does not use the differences":        {Kind: TIS, DifferenceHigh: 0.1},
		"dppo does not use the floor":             {Kind: DPPO, DropUnderFloor: true},
		"sequence-mask does not use the largest":  {Kind: SequenceMask, MaxKL: 0.1},
		"sequence-mask does not use the bounds":   {Kind: SequenceMask, Metric: MetricKL, High: 2},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error with %q", c, err, want)
		}
	}
}
