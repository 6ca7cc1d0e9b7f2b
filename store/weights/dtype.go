package weights

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// DType is the type of a tensor's elements, by its name in a safetensors header.
type DType string

// Types that are scanned, read as float32, or cast to.
const (
	// F32 is IEEE 754 binary32, the type that the embedded trainer publishes.
	F32 DType = "F32"
	// BF16 is the upper half of an F32.
	BF16 DType = "BF16"
	// F16 is IEEE 754 binary16.
	F16 DType = "F16"
	// F64 is IEEE 754 binary64.
	F64 DType = "F64"
	// F8E4M3 has 4 bits of exponent, 3 of mantissa, no infinity, and ends at 448.
	F8E4M3 DType = "F8_E4M3"
)

// elementBits is the size of an element of every type of the format, in bits.
var elementBits = map[DType]int64{
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
	"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, F8E4M3: 8, "F8_E8M0": 8,
	"U16": 16, "I16": 16, F16: 16, BF16: 16,
	"U32": 32, "I32": 32, F32: 32,
	"U64": 64, "I64": 64, F64: 64, "C64": 64,
}

// dtypeNames lists the known types for an error.
func dtypeNames() string {
	names := make([]string, 0, len(elementBits))
	for d := range elementBits {
		names = append(names, string(d))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// tensorBytes returns the size of a tensor's data. An empty shape is a scalar.
func tensorBytes(d DType, shape []int) (int64, error) {
	bits, ok := elementBits[d]
	if !ok {
		return 0, fmt.Errorf("dtype %q is unknown, want one of %s", d, dtypeNames())
	}
	elements := int64(1)
	for _, n := range shape {
		if n < 0 {
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		}
		if n > 0 && elements > math.MaxInt64/64/int64(n) {
			return 0, fmt.Errorf("shape %v has more elements than can be addressed", shape)
		}
		elements *= int64(n)
	}
	if elements*bits%8 != 0 {
		return 0, fmt.Errorf("shape %v of %s ends inside a byte", shape, d)
	}
	return elements * bits / 8, nil
}
