package metertest

import (
	"slices"

	"github.com/sandboxd/sandboxd/host/wasmbin"
)

const (
	i32       = wasmbin.I32
	i64       = wasmbin.I64
	f32       = wasmbin.F32
	f64       = wasmbin.F64
	v128      = wasmbin.V128
	funcref   = wasmbin.FuncRef
	externref = wasmbin.ExternRef
)

// A care is what has to be done about an instruction so that it ends in the same way everywhere.
type care int

const (
	none    care = iota
	divides      // traps for some divisors
	narrows      // traps for floating-point numbers that are no such integer
	nan          // what a NaN carries is not determined
	nans32       // the same of a vector's lanes
	nans64
	lanes // has an index of a lane behind it
)

// An op is an instruction that computes one value of others.
type op struct {
	code []byte
	in   []wasmbin.ValueType
	out  wasmbin.ValueType
	care care
	most int // lanes
}

// ops are the instructions that compute, by what they give.
var ops = func() map[wasmbin.ValueType][]op {
	all := map[wasmbin.ValueType][]op{}
	add := func(c care, out wasmbin.ValueType, in []wasmbin.ValueType, from, to byte) {
		for code := int(from); code <= int(to); code++ {
			all[out] = append(all[out], op{code: []byte{byte(code)}, in: in, out: out, care: c})
		}
	}
	type t = []wasmbin.ValueType
	// Tests and comparisons.
	add(none, i32, t{i32}, 0x45, 0x45)
	add(none, i32, t{i32, i32}, 0x46, 0x4f)
	add(none, i32, t{i64}, 0x50, 0x50)
	add(none, i32, t{i64, i64}, 0x51, 0x5a)
	add(none, i32, t{f32, f32}, 0x5b, 0x60)
	add(none, i32, t{f64, f64}, 0x61, 0x66)
	// Integers.
	add(none, i32, t{i32}, 0x67, 0x69)
	add(none, i32, t{i32, i32}, 0x6a, 0x6c)
	add(divides, i32, t{i32, i32}, 0x6d, 0x70)
	add(none, i32, t{i32, i32}, 0x71, 0x78)
	add(none, i64, t{i64}, 0x79, 0x7b)
	add(none, i64, t{i64, i64}, 0x7c, 0x7e)
	add(divides, i64, t{i64, i64}, 0x7f, 0x82)
	add(none, i64, t{i64, i64}, 0x83, 0x8a)
	// Floating-point numbers.
	add(nan, f32, t{f32}, 0x8b, 0x91)
	add(nan, f32, t{f32, f32}, 0x92, 0x98)
	add(nan, f64, t{f64}, 0x99, 0x9f)
	add(nan, f64, t{f64, f64}, 0xa0, 0xa6)
	// Conversions.
	add(none, i32, t{i64}, 0xa7, 0xa7)
	add(narrows, i32, t{f32}, 0xa8, 0xa9)
	add(narrows, i32, t{f64}, 0xaa, 0xab)
	add(none, i64, t{i32}, 0xac, 0xad)
	add(narrows, i64, t{f32}, 0xae, 0xaf)
	add(narrows, i64, t{f64}, 0xb0, 0xb1)
	add(none, f32, t{i32}, 0xb2, 0xb3)
	add(none, f32, t{i64}, 0xb4, 0xb5)
	add(nan, f32, t{f64}, 0xb6, 0xb6)
	add(none, f64, t{i32}, 0xb7, 0xb8)
	add(none, f64, t{i64}, 0xb9, 0xba)
	add(nan, f64, t{f32}, 0xbb, 0xbb)
	add(none, i32, t{f32}, 0xbc, 0xbc)
	add(none, i64, t{f64}, 0xbd, 0xbd)
	add(none, f32, t{i32}, 0xbe, 0xbe)
	add(none, f64, t{i64}, 0xbf, 0xbf)
	add(none, i32, t{i32}, 0xc0, 0xc1)
	add(none, i64, t{i64}, 0xc2, 0xc4)
	for sub := range byte(8) { // saturating truncation
		in, out := f32, i32
		if sub&2 != 0 {
			in = f64
		}
		if sub >= 4 {
			out = i64
		}
		all[out] = append(all[out], op{code: []byte{0xfc, sub}, in: t{in}, out: out})
	}
	// Vectors.
	vector := func(c care, out wasmbin.ValueType, in []wasmbin.ValueType, most int, subs ...int) {
		for _, sub := range subs {
			all[out] = append(all[out], op{code: u32([]byte{0xfd}, sub), in: in, out: out, care: c, most: most})
		}
	}
	span := func(from, to int) (subs []int) {
		for sub := from; sub <= to; sub++ {
			subs = append(subs, sub)
		}
		return subs
	}
	vector(none, v128, t{v128}, 0, 77, 96, 97, 98, 124, 125, 126, 127, 128, 129, 135, 136, 137, 138, 160, 161, 167, 168, 169, 170, 192, 193,
		199, 200, 201, 202, 248, 249, 250, 251, 252, 253, 254, 255)
	vector(nans32, v128, t{v128}, 0, 94, 103, 104, 105, 106, 224, 225, 227)
	vector(nans64, v128, t{v128}, 0, 95, 116, 117, 122, 148, 236, 237, 239)
	vector(none, v128, t{v128, v128}, 0, slices.Concat([]int{14}, span(35, 76), span(78, 81), []int{101, 102}, span(110, 115), span(118, 121),
		[]int{123, 130, 133, 134}, span(142, 147), span(149, 153), span(155, 159), []int{174, 177}, span(181, 186), span(188, 191),
		[]int{206, 209}, span(213, 223))...)
	vector(nans32, v128, t{v128, v128}, 0, span(228, 235)...)
	vector(nans64, v128, t{v128, v128}, 0, span(240, 247)...)
	vector(none, v128, t{v128, v128, v128}, 0, 82)
	vector(none, i32, t{v128}, 0, 83, 99, 100, 131, 132, 163, 164, 195, 196)
	vector(none, v128, t{v128, i32}, 0, slices.Concat(span(107, 109), span(139, 141), span(171, 173), span(203, 205))...)
	for _, lane := range []struct {
		t                wasmbin.ValueType
		splat, put, most int
		get              []int
	}{
		{i32, 15, 23, 16, []int{21, 22}}, {i32, 16, 26, 8, []int{24, 25}}, {i32, 17, 28, 4, []int{27}},
		{i64, 18, 30, 2, []int{29}}, {f32, 19, 32, 4, []int{31}}, {f64, 20, 34, 2, []int{33}},
	} {
		vector(none, v128, t{lane.t}, 0, lane.splat)
		vector(lanes, v128, t{v128, lane.t}, lane.most, lane.put)
		vector(lanes, lane.t, t{v128}, lane.most, lane.get...)
	}
	return all
}()

// An access is an instruction that loads or stores.
type access struct {
	code  []byte
	align int // the most, as a power of two
	lanes int // of a vector of which one is loaded or stored
}

var loads = map[wasmbin.ValueType][]access{
	i32: {{[]byte{0x28}, 2, 0}, {[]byte{0x2c}, 0, 0}, {[]byte{0x2d}, 0, 0}, {[]byte{0x2e}, 1, 0}, {[]byte{0x2f}, 1, 0}},
	i64: {{[]byte{0x29}, 3, 0}, {[]byte{0x30}, 0, 0}, {[]byte{0x31}, 0, 0}, {[]byte{0x32}, 1, 0}, {[]byte{0x33}, 1, 0}, {[]byte{0x34}, 2, 0}, {[]byte{0x35}, 2, 0}},
	f32: {{[]byte{0x2a}, 2, 0}},
	f64: {{[]byte{0x2b}, 3, 0}},
	v128: {{[]byte{0xfd, 0}, 4, 0}, {[]byte{0xfd, 1}, 3, 0}, {[]byte{0xfd, 2}, 3, 0}, {[]byte{0xfd, 3}, 3, 0}, {[]byte{0xfd, 4}, 3, 0},
		{[]byte{0xfd, 5}, 3, 0}, {[]byte{0xfd, 6}, 3, 0}, {[]byte{0xfd, 7}, 0, 0}, {[]byte{0xfd, 8}, 1, 0}, {[]byte{0xfd, 9}, 2, 0}, {[]byte{0xfd, 10}, 3, 0},
		{[]byte{0xfd, 92}, 2, 0}, {[]byte{0xfd, 93}, 3, 0},
		{[]byte{0xfd, 84}, 0, 16}, {[]byte{0xfd, 85}, 1, 8}, {[]byte{0xfd, 86}, 2, 4}, {[]byte{0xfd, 87}, 3, 2}},
}

var stores = map[wasmbin.ValueType][]access{
	i32:  {{[]byte{0x36}, 2, 0}, {[]byte{0x3a}, 0, 0}, {[]byte{0x3b}, 1, 0}},
	i64:  {{[]byte{0x37}, 3, 0}, {[]byte{0x3c}, 0, 0}, {[]byte{0x3d}, 1, 0}, {[]byte{0x3e}, 2, 0}},
	f32:  {{[]byte{0x38}, 2, 0}},
	f64:  {{[]byte{0x39}, 3, 0}},
	v128: {{[]byte{0xfd, 11}, 4, 0}, {[]byte{0xfd, 88}, 0, 16}, {[]byte{0xfd, 89}, 1, 8}, {[]byte{0xfd, 90}, 2, 4}, {[]byte{0xfd, 91}, 3, 2}},
}
