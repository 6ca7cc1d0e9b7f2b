package cases

import (
	"math"

	"github.com/headway-rl/headway/predict/hardware"
)

// Engine puts what the fit knows of any software into an engine that splits its layers over its GPUs. The
// engine's memory, types and lengths stay.
func (f Fitted) Engine(r hardware.Replica) hardware.Replica {
	return engine(f.Values, r, r.GPUs > 1, false)
}

// Trainer puts what the fit knows of trainers that split a model into one and into its layout.
func (f Fitted) Trainer(t hardware.Trainer, l hardware.Layout) (hardware.Trainer, hardware.Layout) {
	return trainer(f.Values, t, l, false)
}

// ShardedMFU is the MFU of so many passes over a batch by a trainer that shards parameters without splitting the model.
// Where no trainer is, it is 0.
func (f Fitted) ShardedMFU(t hardware.Trainer, b hardware.Batch, passes float64) float64 {
	fitted, layout := trainer(f.Values, t, hardware.Layout{}, true)
	mfu, err := t.MFUOf(b.Tokens / fitted.PassesS(layout, b, passes, 2))
	if err != nil {
		return 0
	}
	return mfu
}

// SwitchS is the time to hand shared GPUs from training to rollouts and back, weights included, in seconds.
func (f Fitted) SwitchS(m hardware.Model) float64 { return switchS(f.Values, m) }

// engine puts constants into a replica. Tensor says that its GPUs split layers, experts that they share them.
func engine(c [constants]float64, r hardware.Replica, tensor, experts bool) hardware.Replica {
	r.BandwidthUse, r.PrefillUse = math.Min(c[decodeBandwidth], 1), math.Min(c[prefillUse], 1)
	r.StepOverheadS, r.LayerS = c[decodeStep], c[decodeLayer]
	if tensor {
		r.HeadsRepeated = true
		if r.ExchangeS = c[nearExchange]; r.SplitsLayers() > r.GPU.NodeGPUs {
			r.ExchangeS = c[farExchange]
		}
	}
	if experts {
		r.ExpertS = c[expertLayer]
	}
	return r
}

// trainer puts constants into a trainer and its layout. Sharded says that it shards parameters without
// splitting the model.
func trainer(c [constants]float64, t hardware.Trainer, l hardware.Layout, sharded bool) (hardware.Trainer, hardware.Layout) {
	t.MFU, l.LayerS = c[denseUse], c[denseLayer]
	if t.Model.Experts > 0 {
		t.ExpertUse, l.LayerS, l.ExpertS = c[expertUse], c[layerStart], c[localExpert]
	}
	if sharded { // matrices of experts reach as much less of the peak as they do elsewhere
		t.MFU, t.ExpertUse, l.ExpertS = c[shardedUse], t.ExpertUse*c[shardedUse]/c[denseUse], 0
	}
	t.MFU, t.ExpertUse, t.AttentionUse = math.Min(t.MFU, 1), math.Min(t.ExpertUse, 1), math.Min(c[attentionUse], 1)
	if t.GPU.ArmHost {
		l.LayerS, l.ExpertS = l.LayerS*c[armHost], l.ExpertS*c[armHost]
	}
	t.TrafficUse, t.LogitS = math.Min(c[trafficUse], 1), c[logitSeconds]
	return t, l
}

// switchS is the change of shared GPUs, with the weights' way into the engines.
func switchS(c [constants]float64, m hardware.Model) float64 {
	return c[sharedSwitch] + wholeS(c, m, 2)
}

// EngineSpread is how uncertain an engine's decode step with so many rollouts is: the standard deviation of its
// logarithm. The engine's software is one that no row was of.
func (f Fitted) EngineSpread(r hardware.Replica, active float64) float64 {
	return f.spread(func(c [constants]float64) float64 {
		return engine(c, r, r.GPUs > 1, false).Decode(active).Seconds
	}, decodeBandwidth, decodeStep, decodeLayer, nearExchange, farExchange)
}

// TrainerSpread is that of a trainer's passes over a batch.
func (f Fitted) TrainerSpread(t hardware.Trainer, l hardware.Layout, b hardware.Batch) float64 {
	return f.spread(func(c [constants]float64) float64 {
		fitted, layout := trainer(c, t, l, false)
		return fitted.PassesS(layout, b, 1, 2)
	}, denseUse, expertUse, attentionUse, trafficUse, logitSeconds, denseLayer, layerStart, localExpert, armHost)
}

// spread is how far a time moves with each of such constants by its spread, and with what no constant explains.
func (f Fitted) spread(of func([constants]float64) float64, moves ...int) float64 {
	unknown := f.of("")
	base, sum := of(unknown.Values), rowNoise*rowNoise
	for _, i := range moves {
		by := make([]float64, constants)
		by[i] = unknown.Spreads[i]
		d := math.Log(of(moved(unknown.Values, by)) / base)
		sum += d * d
	}
	return math.Sqrt(sum)
}

// wholeS is the time in which tensors of so many bytes a number are gathered and sent whole, one after another.
func wholeS(c [constants]float64, m hardware.Model, bytes float64) float64 {
	return m.Tensors()*c[syncTensor] + m.WeightBytes(bytes)/c[wholeRate]
}
