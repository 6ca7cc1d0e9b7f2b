package hardware

// Architecture is a decoder's shape, as configuration files publish it: enough
// to count its parameters. Blocks are gated (three matrices) unless Ungated, norms have no
// bias. The zero value is no shape.
type Architecture struct {
	Vocabulary, Hidden, Layers int
	Heads, KVHeads, HeadDim    int
	// Intermediate is the width of a dense block's inner layer; 0 where every layer has experts.
	Intermediate int
	// Tied says that input and output share one table.
	Tied bool
	// QKVBias says that query, key and value projections have a bias; OutputBias, that the output one has.
	QKVBias, OutputBias bool
	// QKNorm says that queries and keys are normalised per head.
	QKNorm bool

	// Experts, ExpertsPerToken and SharedExperts are those of a layer with experts, each of width ExpertIntermediate.
	Experts, ExpertsPerToken, SharedExperts, ExpertIntermediate int
	// DenseLayers is how many of the layers have no experts, in a model that has them.
	DenseLayers int
	// ExpertBias says that experts and their router have biases.
	ExpertBias bool

	// QRank, KVRank, RopeDim, NopeDim and ValueDim are latent attention's; KVRank 0 for grouped-query attention.
	QRank, KVRank, RopeDim, NopeDim, ValueDim int
	// WindowLayers of the layers attend to WindowTokens alone.
	WindowLayers, WindowTokens int
	// StateLayers of the layers keep a state instead of a cache (linear attention), with keys and values of these
	// widths. They count among WindowLayers, with a window whose cache is as large as the state.
	StateLayers, StateKeys, StateValues int
	// Ungated says that inner layers and experts have two matrices and no gate.
	Ungated bool
	// GatedOutput says that attention's output is multiplied by a gate as wide as its queries.
	GatedOutput bool
}

// Parameters counts them all.
func (a Architecture) Parameters() float64 {
	tables := a.table()
	if !a.Tied {
		tables *= 2
	}
	h := float64(a.Hidden)
	layers := float64(a.Layers-a.StateLayers)*a.attention() + float64(a.StateLayers)*a.state() + float64(a.Layers)*2*h
	return tables + layers + a.dense() + a.experts(a.Experts) + h
}

// Active counts those one token uses, the input table included.
func (a Architecture) Active() float64 {
	return a.Parameters() - a.experts(a.Experts) + a.experts(a.ExpertsPerToken)
}

// Routed counts the parameters of all routed experts of all layers.
func (a Architecture) Routed() float64 {
	return a.expertLayers() * float64(a.Experts) * a.expert()
}

// Lookup counts an input table that nothing multiplies with.
func (a Architecture) Lookup() float64 {
	if a.Tied {
		return 0
	}
	return a.table()
}

// Tensors counts the matrices and vectors published weights come in, each
// expert's by itself.
func (a Architecture) Tensors() int {
	attention := 4
	if a.KVRank > 0 {
		attention = 7
	}
	if a.QKVBias {
		attention += 3
	}
	if a.OutputBias {
		attention++
	}
	if a.QKNorm {
		attention += 2
	}
	layers := a.Layers * (attention + 2)
	dense := a.Layers
	if a.Experts > 0 {
		dense = a.DenseLayers
		perExpert := int(a.matrices())
		if a.ExpertBias {
			perExpert = 6
		}
		layers += (a.Layers - a.DenseLayers) * (1 + perExpert*(a.Experts+a.SharedExperts))
	}
	tables := 2
	if a.Tied {
		tables = 1
	}
	return layers + int(a.matrices())*dense + tables + 1
}

// table counts one vocabulary table.
func (a Architecture) table() float64 { return float64(a.Vocabulary) * float64(a.Hidden) }

// attention counts one layer's.
func (a Architecture) attention() float64 {
	h, heads := float64(a.Hidden), float64(a.Heads)
	if a.KVRank > 0 {
		q, kv := float64(a.QRank), float64(a.KVRank)
		rope, nope, value := float64(a.RopeDim), float64(a.NopeDim), float64(a.ValueDim)
		query := h*q + q + q*heads*(nope+rope)
		if a.QRank == 0 {
			query = h * heads * (nope + rope)
		}
		return query + h*(kv+rope) + kv + kv*heads*(nope+value) + heads*value*h
	}
	query, key := heads*float64(a.HeadDim), float64(a.KVHeads)*float64(a.HeadDim)
	n := 2*h*query + 2*h*key
	if a.QKVBias {
		n += query + 2*key
	}
	if a.OutputBias {
		n += h
	}
	if a.QKNorm {
		n += 2 * float64(a.HeadDim)
	}
	if a.GatedOutput {
		n += h * query
	}
	return n
}

// state counts one layer that keeps a state: queries and keys, values and their gate, and the output.
func (a Architecture) state() float64 {
	h, keys, values := float64(a.Hidden), float64(a.StateKeys), float64(a.StateValues)
	return h*(2*keys+2*values) + values*h
}

// dense counts the inner layers of the layers without experts.
func (a Architecture) dense() float64 {
	layers := a.Layers
	if a.Experts > 0 {
		layers = a.DenseLayers
	}
	return float64(layers) * a.matrices() * float64(a.Hidden) * float64(a.Intermediate)
}

// matrices is how many an inner layer or an expert has.
func (a Architecture) matrices() float64 {
	if a.Ungated {
		return 2
	}
	return 3
}

// experts counts routers, shared experts and so many routed experts of every layer that has them.
func (a Architecture) experts(routed int) float64 {
	if a.Experts == 0 {
		return 0
	}
	router := float64(a.Hidden) * float64(a.Experts)
	return a.expertLayers() * (router + float64(routed+a.SharedExperts)*a.expert())
}

// expertLayers is the number of layers that have experts.
func (a Architecture) expertLayers() float64 {
	if a.Experts == 0 {
		return 0
	}
	return float64(a.Layers - a.DenseLayers)
}

// expert counts one expert.
func (a Architecture) expert() float64 {
	h, inner := float64(a.Hidden), float64(a.ExpertIntermediate)
	n := a.matrices() * h * inner
	if a.ExpertBias {
		n += 2*inner + h
	}
	return n
}

// ModelOf counts a model of the caller's own from its shape; parameters that its
// card prints may replace those counted. Source says where the shape is published.
func ModelOf(name string, a Architecture, source string) Model {
	return a.model(name, a.Parameters(), source)
}

// model turns a shape into what rooflines read.
func (a Architecture) model(name string, parameters float64, source string) Model {
	m := Model{
		Name: name, Parameters: parameters, LookupParameters: a.Lookup(),
		Layers: a.Layers, Hidden: a.Hidden, KVHeads: a.KVHeads, HeadDim: a.HeadDim,
		AttentionWidth: a.Heads * a.HeadDim,
		WindowLayers:   a.WindowLayers, WindowTokens: a.WindowTokens,
		Experts: a.Experts, ExpertsPerToken: a.ExpertsPerToken, ExpertParameters: a.Routed(),
		Architecture: a, Source: source,
	}
	if a.KVRank > 0 {
		m.KVBytesPerToken = 2 * float64(a.Layers) * float64(a.KVRank+a.RopeDim)
		m.AttentionWidth = a.Heads * (a.NopeDim + a.RopeDim)
	}
	if a.Experts > 0 {
		m.ActiveParameters = a.Active()
	}
	return m
}
