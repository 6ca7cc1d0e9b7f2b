package foreign

// frameworks are all that are known, in the order in which they are looked for and shown. It is
// filled in init as rules name functions that reach it.
var frameworks []*Framework

func init() {
	frameworks = []*Framework{
		verlFullyAsync,
		verlV1,
		verlSync,
		primeRL,
		skyRL,
		trl,
		areal, pipelineRL, slime, nemoRL, openRLHF, roll,
	}
}
