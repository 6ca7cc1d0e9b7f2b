package hardware

import (
	"cmp"
	"fmt"
)

// GPU is what one device can do at best, as its vendor publishes it.
type GPU struct {
	// Name is the preset's, such as h100-sxm.
	Name string
	// MemoryBytes is what a process sees before any framework; vendors' "GB" are 2³⁰ bytes here, as drivers report within 1 %.
	MemoryBytes float64
	// MemoryBytesPerS is the peak memory bandwidth.
	MemoryBytesPerS float64
	// BF16 is the peak of dense bf16 multiplication, in FLOP/s, without sparsity.
	BF16 float64
	// FP8 is that of fp8; 0 where the device has none, and bf16's applies.
	FP8 float64
	// FP4 is that of fp4 weights with fp4 or fp8 activations; 0 where the device has none, and bf16's applies: such weights
	// are widened first.
	FP4 float64
	// LinkBytesPerS is what one GPU sends to the others of its node, one way.
	LinkBytesPerS float64
	// NodeGPUs is how many share that link.
	NodeGPUs int
	// NICBytesPerS is a usual network card's rate, one way: a default, not a property of the GPU.
	NICBytesPerS float64
	// ArmHost says that the host is a Grace processor, which launches kernels more slowly than others (Vellaisamy et al.
	// 2025, of GH200).
	ArmHost bool
	// Source names where the figures are published, with the date.
	Source string
}

// gib is a vendor's gigabyte of device memory.
const gib = 1 << 30

// ratesOfNICs in bytes per second.
const (
	nic100 = 12.5e9
	nic200 = 25e9
	nic400 = 50e9
	nic800 = 100e9
)

// gpus lists the devices, by vendor and age. Sparse figures of data sheets are halved.
var gpus = []GPU{
	{"a100-40-pcie", 40 * gib, 1.555e12, 312e12, 0, 0, 32e9, 8, nic200, false, "NVIDIA A100 data sheet, 2021-06"},
	{"a100-80-pcie", 80 * gib, 1.935e12, 312e12, 0, 0, 32e9, 8, nic200, false, "NVIDIA A100 data sheet, 2021-06"},
	{"a100-40-sxm", 40 * gib, 1.555e12, 312e12, 0, 0, 300e9, 8, nic200, false, "NVIDIA A100 data sheet, 2021-06"},
	{"a100-80-sxm", 80 * gib, 2.039e12, 312e12, 0, 0, 300e9, 8, nic200, false, "NVIDIA A100 data sheet, 2021-06"},
	{"h100-pcie", 80 * gib, 2.0e12, 756e12, 1513e12, 0, 64e9, 8, nic400, false, "NVIDIA H100 data sheet, 2023-03"},
	{"h100-sxm", 80 * gib, 3.35e12, 989e12, 1979e12, 0, 450e9, 8, nic400, false, "NVIDIA H100 data sheet, 2023-03"},
	{"h800-sxm", 80 * gib, 3.35e12, 989e12, 1979e12, 0, 200e9, 8, nic400, false, "DeepSeek-V3 report (NVLink 400 GB/s), NVIDIA H100 data sheet, 2024-12"},
	{"h200", 141 * gib, 4.8e12, 989e12, 1979e12, 0, 450e9, 8, nic400, false, "NVIDIA H200 data sheet, 2024-11"},
	{"h20", 96 * gib, 4.0e12, 148e12, 296e12, 0, 450e9, 8, nic400, false, "NVIDIA HGX H20 specification as printed by SemiAnalysis, 2023-11"},
	{"b200", 180 * gib, 7.7e12, 2250e12, 4500e12, 9000e12, 900e9, 8, nic400, false, "NVIDIA HGX B200 data sheet, 2025-03"},
	{"gb200", 186 * gib, 8.0e12, 2500e12, 5000e12, 10000e12, 900e9, 72, nic400, true, "NVIDIA GB200 NVL72 data sheet, 2025-03"},
	{"b300", 268 * gib, 8.0e12, 2250e12, 4500e12, 13500e12, 900e9, 8, nic800, false, "NVIDIA DGX B300 data sheet, 2025-03; 288 GB"},
	{"gb300", 277 * gib, 8.0e12, 2500e12, 5000e12, 15000e12, 900e9, 72, nic800, true, "NVIDIA GB300 NVL72 product page, 2025-03; 20 TB of a rack"},
	{"l40s", 45 * gib, 864e9, 362e12, 733e12, 0, 32e9, 8, nic100, false, "NVIDIA L40S data sheet, 2023-08; 48 GB less ECC"},
	{"l4", 22.5 * gib, 300e9, 121e12, 242e12, 0, 32e9, 8, nic100, false, "NVIDIA L4 data sheet, 2023-03; 24 GB less ECC"},
	{"rtx-4090", 24 * gib, 1.008e12, 165e12, 330e12, 0, 32e9, 8, nic100, false, "NVIDIA Ada architecture paper, 2022-09; fp32 accumulation"},
	{"a10", 22.5 * gib, 600e9, 125e12, 0, 0, 32e9, 8, nic100, false, "NVIDIA A10 data sheet, 2021-04; 24 GB less ECC"},
	{"mi300x", 192 * gib, 5.3e12, 1307e12, 2615e12, 0, 448e9, 8, nic400, false, "AMD Instinct MI300X data sheet, 2023-12"},
	{"mi325x", 256 * gib, 6.0e12, 1307e12, 2615e12, 0, 448e9, 8, nic400, false, "AMD Instinct MI325X data sheet, 2024-10"},
	{"mi355x", 288 * gib, 8.0e12, 2517e12, 5033e12, 10066e12, 537e9, 8, nic400, false, "AMD Instinct MI355X data sheet, 2025-06"},
}

// aliases are names people write for a preset; a100 and h100 mean the usual ones.
var aliases = map[string]string{
	"a100": "a100-80-sxm", "a100-80gb": "a100-80-sxm", "a100-40gb": "a100-40-sxm", "a100-80": "a100-80-sxm", "a100-40": "a100-40-sxm", "a100-sxm": "a100-80-sxm", "a100-pcie": "a100-80-pcie",
	"h100": "h100-sxm", "h100-80gb": "h100-sxm", "h100-hbm3": "h100-sxm", "h100-80gb-hbm3": "h100-sxm", "h100-sxm5": "h100-sxm", "a100-80gb-sxm": "a100-80-sxm", "a100-sxm4-80gb": "a100-80-sxm", "gb200-nvl72": "gb200", "gb300-nvl72": "gb300", "b300-sxm": "b300", "h800": "h800-sxm", "h200-sxm": "h200", "b200-sxm": "b200", "4090": "rtx-4090", "rtx4090": "rtx-4090",
}

// GPUs lists the presets, by vendor and age.
func GPUs() []GPU { return append([]GPU(nil), gpus...) }

// GPUNamed returns a preset; case does not matter. An unknown name is an error
// that names the nearest preset and how to list all.
func GPUNamed(name string) (GPU, error) {
	names := make([]string, len(gpus))
	for i, g := range gpus {
		names[i] = g.Name
	}
	i, err := lookup("GPU", name, names, aliases)
	if err != nil {
		return GPU{}, err
	}
	return gpus[i], nil
}

// FLOPs returns the peak at that many bytes a weight: fp4's below one byte and fp8's at one where the device
// has them, else bf16's.
func (g GPU) FLOPs(weightBytes float64) float64 {
	if weightBytes < 1 {
		return cmp.Or(g.FP4, g.BF16)
	}
	if weightBytes <= 1 && g.FP8 > 0 {
		return g.FP8
	}
	return g.BF16
}

// Validate says what is wrong with a device of the caller's own.
func (g GPU) Validate() error {
	if g == (GPU{}) {
		return fmt.Errorf("GPU: none given: name a preset; %s", howToList)
	}
	name := "GPU " + g.Name
	if err := positive(name, "memory in bytes", g.MemoryBytes, 1e14); err != nil {
		return err
	}
	if err := positive(name, "memory bandwidth in bytes/s", g.MemoryBytesPerS, 1e15); err != nil {
		return err
	}
	if err := positive(name, "bf16 FLOP/s", g.BF16, 1e18); err != nil {
		return err
	}
	return positive(name, "link in bytes/s", g.LinkBytesPerS, 1e15)
}
