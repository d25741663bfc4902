package guest

import (
	"encoding/json"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

type (
	scalars struct {
		Text string  `json:"text"`
		Flag bool    `json:"flag"`
		Int  int     `json:"int"`
		Num  float64 `json:"num"`
		Bare string
	}
	small struct {
		I8  int8   `json:"i8,omitempty"`
		I16 int16  `json:"i16,omitempty"`
		I32 int32  `json:"i32,omitempty"`
		I64 int64  `json:"i64,omitempty"`
		U8  uint8  `json:"u8,omitempty"`
		U16 uint16 `json:"u16,omitempty"`
		U32 uint32 `json:"u32,omitempty"`
		U   uint   `json:"u,omitempty"`
	}
	lists struct {
		List  []string       `json:"list"`
		Deep  [][]int        `json:"deep,omitempty"`
		Three [3]int         `json:"three,omitzero"`
		Map   map[string]int `json:"map,omitempty"`
		Any   any            `json:"any,omitempty"`
		Items []scalarsLite  `json:"items,omitempty"`
	}
	scalarsLite struct {
		Text string `json:"text"`
	}
	pointers struct {
		P  *int         `json:"p,omitempty"`
		S  *scalarsLite `json:"s,omitempty"`
		L  *[]int       `json:"l,omitempty"`
		PP **string     `json:"pp,omitempty"`
	}
	base struct {
		ID   string `json:"id"`
		Name string `json:"name,omitempty"`
	}
	embeds struct {
		base
		Name int `json:"name"`
		No   int `json:"-"`
		no   int
	}
	times struct {
		At time.Time  `json:"at"`
		Or *time.Time `json:"or,omitempty"`
	}
	texts struct {
		M map[netip.Addr]int `json:"m"`
	}
	empty struct{}
)

// samples are documents of every sort; most are wrong for any one type.
var samples = []string{
	`null`, `true`, `7`, `-1`, `7.0`, `7.5`, `1e2`, `"x"`, `""`, `[]`, `{}`, `[1]`, `["x"]`,
	`{"text":"a","flag":true,"int":1,"num":1.5,"Bare":"b"}`, `{"text":"a","flag":true,"int":1,"num":1,"Bare":"b","more":1}`,
	`{"text":"a","flag":true,"int":1,"num":1.5}`, `{"text":null,"flag":true,"int":1,"num":1.5,"Bare":"b"}`, `{"text":"a","flag":"true","int":1,"num":1.5,"Bare":"b"}`,
	`{"text":"a","flag":true,"int":1.5,"num":1.5,"Bare":"b"}`, `{"text":"a","flag":true,"int":1.0,"num":"1","Bare":"b"}`, `{"text":"a"}`,
	`{"i8":127}`, `{"i8":128}`, `{"i8":-128}`, `{"i8":-129}`, `{"i16":32767}`, `{"i16":32768}`, `{"i32":-2147483648}`, `{"i32":-2147483649}`, `{"i64":9007199254740992}`,
	`{"u8":0}`, `{"u8":-1}`, `{"u8":255}`, `{"u8":256}`, `{"u16":65536}`, `{"u32":4294967295}`, `{"u32":4294967296}`, `{"u":-1}`, `{"u":1}`,
	`{"list":[]}`, `{"list":null}`, `{"list":["a"]}`, `{"list":[1]}`, `{"list":"a"}`, `{"list":[null]}`, `{"list":[],"deep":[[1],null,[]]}`, `{"list":[],"deep":[["x"]]}`,
	`{"list":[],"three":[1,2,3]}`, `{"list":[],"three":[1,2]}`, `{"list":[],"three":null}`, `{"list":[],"map":{"a":1}}`, `{"list":[],"map":{"a":"b"}}`,
	`{"list":[],"any":null}`, `{"list":[],"any":{"a":[1]}}`, `{"list":[],"items":[{"text":"a"}]}`, `{"list":[],"items":[{}]}`, `{"list":[],"items":[{"text":"a","b":1}]}`,
	`{"p":1}`, `{"p":null}`, `{"p":"x"}`, `{"s":null}`, `{"s":{"text":"a"}}`, `{"s":{}}`, `{"l":null}`, `{"l":[1]}`, `{"l":1}`, `{"pp":"x"}`, `{"pp":null}`, `{"pp":1}`,
	`{"id":"a","name":1}`, `{"id":"a","name":"b"}`, `{"id":"a"}`, `{"name":1}`, `{"id":"a","name":1,"No":1}`, `{"id":"a","name":1,"no":1}`, `{"base":{"id":"a"},"name":1}`,
	`{"at":"2026-03-01T09:00:00Z"}`, `{"at":1}`, `{"at":"2026-03-01T09:00:00Z","or":null}`, `{"at":{}}`, `{"m":{"1.2.3.4":1}}`, `{"m":{"1.2.3.4":"x"}}`,
}

// TestSchemasAgree checks that the schemas made here and those of jsonschema.For
// accept and refuse the same documents, wherever the two mean the same.
func TestSchemasAgree(t *testing.T) {
	for _, typ := range []reflect.Type{
		reflect.TypeFor[scalars](), reflect.TypeFor[small](), reflect.TypeFor[lists](), reflect.TypeFor[pointers](), reflect.TypeFor[embeds](), reflect.TypeFor[times](),
		reflect.TypeFor[texts](), reflect.TypeFor[empty](), reflect.TypeFor[map[string]any](), reflect.TypeFor[map[string]scalarsLite](), reflect.TypeFor[string](),
		reflect.TypeFor[[]int](), reflect.TypeFor[*int](), reflect.TypeFor[any](), reflect.TypeFor[float32](), reflect.TypeFor[bool](), reflect.TypeFor[uint64](),
	} {
		t.Run(typ.String(), func(t *testing.T) {
			theirs, err := jsonschema.ForType(typ, nil)
			if err != nil {
				t.Fatal(err)
			}
			accepted := 0
			for _, sample := range samples {
				our, their := accepts(t, ourSchema(t, typ), sample), accepts(t, theirs, sample)
				if our != their {
					t.Errorf("%s: accepted here: %v, by jsonschema.For: %v", sample, our, their)
				}
				if our {
					accepted++
				}
			}
			if accepted == 0 || accepted == len(samples) && typ.Kind() != reflect.Interface {
				t.Errorf("%d of %d samples accepted: they show nothing", accepted, len(samples))
			}
		})
	}
}

// TestSchemasDiffer is the list of types for which the two differ, on purpose.
func TestSchemasDiffer(t *testing.T) {
	type pointer struct {
		P *int `json:"p"`
	}
	type withDefault struct {
		N int `json:"n" default:"1"`
	}
	type embedded struct {
		*base
	}
	for _, c := range []struct {
		why        string
		typ        reflect.Type
		sample     string
		our, their bool
	}{
		{"a pointer may be absent", reflect.TypeFor[pointer](), `{}`, true, false},
		{"a member with a default may be absent", reflect.TypeFor[withDefault](), `{}`, true, false},
		{"an embedded pointer may be nil", reflect.TypeFor[embedded](), `{}`, true, false},
		{"a map may be nil", reflect.TypeFor[texts](), `{"m":null}`, true, false},
		{"raw JSON is anything, not bytes", reflect.TypeFor[json.RawMessage](), `{"a":1}`, true, false},
		{"bytes are base64 text", reflect.TypeFor[[]byte](), `"AQ=="`, true, false},
		{"bytes are no list", reflect.TypeFor[[]byte](), `[1]`, false, true},
		{"a json.Number is a number", reflect.TypeFor[json.Number](), `1.50`, true, false},
		{"a json.Number is no text", reflect.TypeFor[json.Number](), `"1.50"`, false, true},
		{"a type with MarshalText is text", reflect.TypeFor[netip.Addr](), `"1.2.3.4"`, true, false},
		{"a type with MarshalJSON is anything", reflect.TypeFor[big.Int](), `7`, true, false},
		{"a Decimal is a number or text", reflect.TypeFor[Decimal](), `1.50`, true, false},
		{"a Decimal is a number or text like one", reflect.TypeFor[Decimal](), `"1.50"`, true, false},
		{"a Document is anything", reflect.TypeFor[Document](), `[1]`, true, false},
	} {
		t.Run(c.why, func(t *testing.T) {
			theirs, err := jsonschema.ForType(c.typ, nil)
			if err != nil {
				t.Fatal(err)
			}
			if our, their := accepts(t, ourSchema(t, c.typ), c.sample), accepts(t, theirs, c.sample); our != c.our || their != c.their {
				t.Errorf("%s: accepted here: %v, want %v; by jsonschema.For: %v, want %v", c.sample, our, c.our, their, c.their)
			}
		})
	}
}

func ourSchema(t *testing.T, typ reflect.Type) *jsonschema.Schema {
	t.Helper()
	s, err := shapeOf(typ)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(s.schema)
	if typ.Kind() == reflect.Map { // as a tool has it
		data, err = s.objectSchema()
	}
	if err != nil {
		t.Fatal(err)
	}
	var out jsonschema.Schema
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return &out
}

func accepts(t *testing.T, s *jsonschema.Schema, document string) bool {
	t.Helper()
	r, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal([]byte(document), &v); err != nil {
		t.Fatal(err)
	}
	return r.Validate(v) == nil
}

// TestTags checks what the struct tags say with documents, not with keywords.
func TestTags(t *testing.T) {
	type tagged struct {
		Text   string         `json:"text,omitempty" doc:"some text" min:"2" max:"3"`
		Form   string         `json:"form,omitempty" pattern:"^[a-z]+$"`
		One    string         `json:"one,omitempty" enum:"a,b"`
		Maybe  *string        `json:"maybe" enum:"a,b"`
		Int    int            `json:"int,omitempty" min:"-1" max:"7"`
		Eight  int8           `json:"eight,omitempty" max:"7"`
		IntOf  int            `json:"int_of,omitempty" enum:"1,2"`
		Num    float64        `json:"num,omitempty" min:"0.5" max:"1.5"`
		NumOf  float64        `json:"num_of,omitempty" enum:"0.5,1e2"`
		List   []string       `json:"list,omitempty" min:"1" max:"2" enum:"a,b"`
		Forms  []string       `json:"forms,omitempty" pattern:"^[a-z]+$"`
		Ptr    *int           `json:"ptr" min:"1"`
		Map    map[string]int `json:"map,omitempty" min:"1" max:"1"`
		When   string         `json:"when,omitempty" default:"now"`
		Number Decimal        `json:"number" default:"1.50"`
	}
	s := ourSchema(t, reflect.TypeFor[tagged]())
	for sample, want := range map[string]bool{
		`{}`: true, `{"text":"é"}`: false, `{"text":"éé"}`: true, `{"text":"ééé"}`: true, `{"text":"éééé"}`: false,
		`{"form":"abc"}`: true, `{"form":"A"}`: false, `{"one":"b"}`: true, `{"one":"c"}`: false, `{"maybe":null}`: true, `{"maybe":"a"}`: true, `{"maybe":"c"}`: false,
		`{"int":-1}`: true, `{"int":-2}`: false, `{"int":7}`: true, `{"int":8}`: false, `{"eight":7}`: true, `{"eight":8}`: false, `{"eight":-129}`: false,
		`{"int_of":2}`: true, `{"int_of":3}`: false, `{"num":0.5}`: true, `{"num":0.4}`: false, `{"num":1.6}`: false, `{"num_of":100}`: true, `{"num_of":1}`: false,
		`{"list":["a"]}`: true, `{"list":[]}`: false, `{"list":["a","b","a"]}`: false, `{"list":["c"]}`: false, `{"forms":["a"]}`: true, `{"forms":["A"]}`: false,
		`{"ptr":null}`: true, `{"ptr":1}`: true, `{"ptr":0}`: false, `{"map":{"a":1}}`: true, `{"map":{}}`: false, `{"map":{"a":1,"b":1}}`: false,
		`{"number":"1.0"}`: true, `{"number":1}`: true, `{"number":"1."}`: false, `{"number":"01"}`: false,
	} {
		if got := accepts(t, s, sample); got != want {
			t.Errorf("%s: accepted: %v, want %v", sample, got, want)
		}
	}
	if got := s.Properties["text"].Description; got != "some text" {
		t.Errorf("description %q", got)
	}
	if got := string(s.Properties["when"].Default) + string(s.Properties["number"].Default); got != `"now""1.50"` {
		t.Errorf("defaults %s", got)
	}
}

func TestTypesWithoutSchema(t *testing.T) {
	type loop struct {
		Next []map[string]*loop `json:"next"`
	}
	type EmbedsItself struct {
		*EmbedsItself
		A int
	}
	type left struct{ Same int }
	type right struct{ Same int }
	for _, c := range []struct {
		typ reflect.Type
		err string
	}{
		{reflect.TypeFor[chan int](), "type chan int has no JSON form"},
		{reflect.TypeFor[func()](), "type func() has no JSON form"},
		{reflect.TypeFor[complex128](), "complex128"},
		{reflect.TypeFor[map[int]string](), "keys are no text"},
		{reflect.TypeFor[[]chan int](), "chan int"},
		{reflect.TypeFor[map[string]chan int](), "chan int"},
		{reflect.TypeFor[*chan int](), "chan int"},
		{reflect.TypeFor[loop](), "loop contains itself"},
		{reflect.TypeFor[EmbedsItself](), "contains itself"},
		{reflect.TypeFor[struct{ A chan int }](), ".A: type chan int"},
		{reflect.TypeFor[struct {
			left
			right
		}](), `member "Same" comes from two embedded structs`},
		{reflect.TypeFor[struct {
			A int `json:"a,string"`
		}](), "json option string"},
		{reflect.TypeFor[struct {
			A int `min:"x"`
		}](), `min "x"`},
		{reflect.TypeFor[struct {
			A string `max:"-1"`
		}](), "want a count"},
		{reflect.TypeFor[struct {
			A float64 `max:"NaN"`
		}](), `max "NaN"`},
		{reflect.TypeFor[struct {
			A bool `min:"1"`
		}](), "min does not apply to bool"},
		{reflect.TypeFor[struct {
			A [2]int `min:"1"`
		}](), "min does not apply to [2]int"},
		{reflect.TypeFor[struct {
			A Decimal `max:"1"`
		}](), "max does not apply"},
		{reflect.TypeFor[struct {
			A base `max:"1"`
		}](), "max does not apply"},
		{reflect.TypeFor[struct {
			A int `pattern:"x"`
		}](), "pattern does not apply to int"},
		{reflect.TypeFor[struct {
			A bool `enum:"true"`
		}](), `enum "true"`},
		{reflect.TypeFor[struct {
			A int `enum:"1,x"`
		}](), `enum "x"`},
		{reflect.TypeFor[struct {
			A int `default:"x"`
		}](), `default "x"`},
		{reflect.TypeFor[struct {
			A int8 `default:"300"`
		}](), `default "300"`},
		{reflect.TypeFor[struct {
			A Decimal `default:"x"`
		}](), `default "x"`},
		{reflect.TypeFor[struct {
			A []int `default:"[\"x\"]"`
		}](), "default"},
	} {
		if s, err := shapeOf(c.typ); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v, error %v, want %q", c.typ, s, err, c.err)
		}
	}
}

// TestSchemaAcceptsWhatIsEncoded checks that what encoding/json makes of a value
// is what the schema of its type allows, empty values included.
func TestSchemaAcceptsWhatIsEncoded(t *testing.T) {
	n := 7
	for _, v := range []any{scalars{}, small{}, lists{}, lists{Deep: [][]int{nil}, Three: [3]int{1}}, pointers{}, pointers{P: &n}, embeds{no: 1}, times{}, texts{}, empty{},
		Decimal{}, netip.Addr{}, []byte(nil), []byte("x"), json.Number("1"), big.NewInt(1), Forecasts{}, Forecasts{Days: []*scalarsLite{nil, {}}}} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if !accepts(t, ourSchema(t, reflect.TypeOf(v)), string(data)) {
			t.Errorf("%T: its schema refuses %s", v, data)
		}
	}
}

// Forecasts is a result with a list of pointers.
type Forecasts struct {
	Days []*scalarsLite `json:"days"`
}
