package incident

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/internal/jsonline"
	"github.com/evenkeel-go/evenkeel/breaker"
)

// TimelineOptions say how a Timeline looks. The zero value is complete.
type TimelineOptions struct {
	// Width is the number of columns, at least 40. If zero, 100.
	Width int

	// Captions is how many changes of state are listed below the lanes. If zero,
	// 40. If negative, all.
	Captions int
}

// bins is how many stretches of time a Timeline counts in. It starts with short
// ones and doubles them as the file turns out to be longer.
const bins = 1024

// firstBin is the length of a bin at the start.
const firstBin = time.Microsecond

// bin counts the attempts of one upstream in one stretch of time: those that
// began, and those that ended badly.
type bin struct{ began, ended, failed, fallback uint32 }

// track is the history of one lane.
type track struct {
	*lane
	bins    []bin
	changes []change
}

// change is a state from a time on.
type change struct {
	at    time.Duration
	glyph byte
}

// inService is the glyph of an upstream that nothing keeps out.
const inService = 0

// glyph is what stands for the state of an upstream, the first that applies.
func (n *lane) glyph() byte {
	switch {
	case !n.member:
		return ' '
	case n.ejected:
		return 'E'
	case n.breaker == breaker.Open:
		return 'O'
	case !n.healthy:
		return 'U'
	case n.breaker == breaker.HalfOpen:
		return 'h'
	}
	return inService
}

// chart is what a Timeline knows of a file.
type chart struct {
	ledger   *ledger
	tracks   []*track
	byLane   map[*lane]*track
	width    time.Duration // of a bin
	last     time.Duration
	requests int
	attempts int
	failed   int
	captions []caption
	left     int // captions beyond the limit
}

// Timeline reads the rest of a file and draws it: a lane for each upstream, time
// to the right, and below them the changes of state in words. A cell shows how
// many attempts began in it, how many of those that ended failed, or what keeps
// the upstream out; a legend says what means what. It needs the events: a
// scenario is replayed first. No line is longer than the width; what does not
// print is spelt out. The error is that of r or w, or says that the state in the
// header is not one. Memory is O(upstreams + changes of state).
func Timeline(w io.Writer, r *Reader, opt TimelineOptions) error {
	if opt.Width == 0 {
		opt.Width = 100
	}
	if opt.Width < 40 {
		return fmt.Errorf("incident: TimelineOptions.Width is %d, want at least 40", opt.Width)
	}
	if opt.Captions == 0 {
		opt.Captions = 40
	}
	c := &chart{ledger: newLedger(&r.head), byLane: map[*lane]*track{}, width: firstBin}
	if err := c.begin(r); err != nil {
		return err
	}
	var l Line
	for {
		err := r.read(&l)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		c.line(&l, opt.Captions)
	}
	_, err := w.Write(c.draw(&r.head, opt.Width))
	return err
}

// begin finds out how things stood at the start.
func (c *chart) begin(r *Reader) error {
	if len(r.head.State) > 0 {
		// Who is picked does not matter here, so that nothing need be given.
		own, cfg := *r, r.head.Settings
		own.head.HashedKeys = false
		if _, err := jsonline.Resolve(cfg.Policy); err != nil {
			cfg.Policy = balancer.Random{}
		}
		p, err := own.player(cfg)
		if err != nil {
			return err
		}
		c.ledger.begin(p.pool.Snapshot(), p.pool.Leases())
	}
	for _, n := range c.ledger.lanes {
		c.track(n)
	}
	return nil
}

func (c *chart) track(n *lane) *track {
	t := c.byLane[n]
	if t == nil {
		t = &track{lane: n, changes: []change{{0, n.glyph()}}}
		c.byLane[n] = t
		c.tracks = append(c.tracks, t)
	}
	return t
}

func (c *chart) line(l *Line, limit int) {
	c.last = l.At
	if l.Kind == InAcquire || l.Kind == InRequest {
		c.requests++
	}
	if l.Kind == EvState {
		if c.ledger.byID[l.Upstream] == nil {
			c.track(c.ledger.lane(l.Upstream))
		}
	}
	if a := c.ledger.follow(l); a.lane != nil {
		b := c.bin(c.track(a.lane), l.At)
		switch {
		case a.begins:
			c.attempts++
			b.began++
			if a.fallback {
				b.fallback++
			}
		case a.outcome == balancer.Failure || a.outcome == balancer.TransportFailure:
			c.failed++
			b.failed++
			b.ended++
		case a.outcome == balancer.Success:
			b.ended++
		}
	}
	if l.Kind != EvState {
		return
	}
	t := c.track(c.ledger.lane(l.Upstream))
	if g := t.glyph(); g != t.changes[len(t.changes)-1].glyph {
		t.changes = append(t.changes, change{l.At, g})
	}
	if limit >= 0 && len(c.captions) == limit {
		c.left++
		return
	}
	c.captions = append(c.captions, captionOf(l))
}

// caption is a change of state in words.
type caption struct {
	at   time.Duration
	text string
}

func captionOf(l *Line) caption {
	s := fmt.Sprintf("%s %s", l.Upstream, strings.ReplaceAll(l.Event.String(), "_", " "))
	if l.Why != "" && l.Why != "none" {
		s += " (" + strings.ReplaceAll(l.Why, "_", " ")
		if l.Count != 0 {
			s += fmt.Sprintf(", %d", l.Count)
		}
		s += ")"
	}
	if l.Until != 0 {
		s += " until " + seconds(l.Until)
	}
	return caption{l.At, printable(s)}
}

func seconds(d time.Duration) string { return string(jsonline.AppendSeconds(nil, d)) }

// bin is where an instant is counted.
func (c *chart) bin(t *track, at time.Duration) *bin {
	for at/c.width >= bins {
		c.width *= 2
		for _, t := range c.tracks {
			for i := range t.bins {
				b := t.bins[i]
				t.bins[i] = bin{}
				into := &t.bins[i/2]
				into.began += b.began
				into.ended += b.ended
				into.failed += b.failed
				into.fallback += b.fallback
			}
			t.bins = t.bins[:(len(t.bins)+1)/2]
		}
	}
	i := int(at / c.width)
	if i >= len(t.bins) {
		t.bins = append(t.bins, make([]bin, i+1-len(t.bins))...)
	}
	return &t.bins[i]
}

// legend explains the cells.
var legend = [][]string{
	{". : = #  attempts, from few to many", "x  half of them failed or more", "!  some failed"},
	{"E  ejected", "e  ejected, and picked for want of any other", "O  breaker open", "h  half-open"},
	{"U  unhealthy", "-  in service, and no attempt", "blank: not a member"},
}

func (c *chart) draw(h *Header, width int) []byte {
	var b bytes.Buffer
	if h.Note != "" {
		wrap(&b, []string{printable(h.Note)}, "", width, 0)
	}
	title := fmt.Sprintf("from %s, seed %d: %s s, %d requests, %d attempts, %d failed",
		h.Start.UTC().Format(time.RFC3339), h.Seed, seconds(c.last), c.requests, c.attempts, c.failed)
	wrap(&b, []string{title}, "", width, 0)
	b.WriteByte('\n')
	label := 4
	for _, t := range c.tracks {
		label = max(label, columnsOf(printable(t.name)))
	}
	label = min(label, width/3)
	cells := width - label - 2
	span := max(c.last, c.last+1) // all times lie before its end
	fmt.Fprintf(&b, "%*s  %s\n", label, "s", axis(span, cells))
	most := uint32(0)
	rows := make([][]bin, len(c.tracks))
	for i, t := range c.tracks {
		rows[i] = c.cells(t, cells, span)
		for _, x := range rows[i] {
			most = max(most, x.began)
		}
	}
	for i, t := range c.tracks {
		name := tail(printable(t.name), label)
		row := make([]byte, cells)
		for j := range row {
			row[j] = cell(t, rows[i][j], most, edge(j, cells, span), edge(j+1, cells, span))
		}
		fmt.Fprintf(&b, "%s%s  %s\n", name, strings.Repeat(" ", label-columnsOf(name)), bytes.TrimRight(row, " "))
	}
	b.WriteByte('\n')
	for _, items := range legend {
		wrap(&b, items, "    ", width, 0)
	}
	if len(c.captions) > 0 {
		b.WriteByte('\n')
	}
	for _, x := range c.captions {
		at := fmt.Sprintf("%12s  ", seconds(x.at))
		b.WriteString(at)
		wrap(&b, []string{x.text}, "", width, len(at))
	}
	if c.left > 0 {
		fmt.Fprintf(&b, "%12s  and %d more\n", "", c.left)
	}
	return b.Bytes()
}

// edge is when cell i begins.
func edge(i, cells int, span time.Duration) time.Duration {
	q, rem := span/time.Duration(cells), span%time.Duration(cells)
	return q*time.Duration(i) + rem*time.Duration(i)/time.Duration(cells)
}

// cells sums the bins of a track into cells.
func (c *chart) cells(t *track, cells int, span time.Duration) []bin {
	out := make([]bin, cells)
	j := 0
	for i, x := range t.bins {
		for at := time.Duration(i) * c.width; j+1 < cells && at >= edge(j+1, cells, span); {
			j++
		}
		out[j].began += x.began
		out[j].ended += x.ended
		out[j].failed += x.failed
		out[j].fallback += x.fallback
	}
	return out
}

// cell is the glyph of the time from to to. A state that begins there shows, so
// that none is too short to be seen; so does one that lasts for half of it.
func cell(t *track, x bin, most uint32, from, to time.Duration) byte {
	var state, begun byte
	var longest, out time.Duration
	for i, ch := range t.changes {
		end := to
		if i+1 < len(t.changes) {
			end = min(end, t.changes[i+1].at)
		}
		lasts := end - max(from, ch.at)
		if ch.glyph == inService || lasts <= 0 {
			continue
		}
		if out += lasts; lasts > longest {
			state, longest = ch.glyph, lasts
		}
		if ch.at >= from && ch.at > 0 && ch.glyph != ' ' && (begun == inService || ch.glyph != 'h') {
			begun = ch.glyph
		}
	}
	switch {
	case begun != inService:
		state = begun
	case out*2 < to-from && x.began+x.ended > 0:
		state = inService
	}
	switch {
	case state == 'E' && x.fallback > 0:
		return 'e'
	case state != inService:
		return state
	case x.failed > 0 && x.failed*2 >= x.ended:
		return 'x'
	case x.failed > 0:
		return '!'
	case x.began == 0:
		return '-'
	}
	return ".:=#"[min(3, int(uint64(x.began)*4/uint64(most+1)))]
}

// axis is a row of times, at round ones.
func axis(span time.Duration, cells int) string {
	// 1, 2, 5, 10, 20 ... until a label fits in.
	step := time.Duration(1)
	for i := 0; step < span/time.Duration(max(1, cells/12)); i++ {
		if i%3 == 1 {
			step = step / 2 * 5
		} else {
			step *= 2
		}
	}
	row := []rune(strings.Repeat(" ", cells))
	for at, col := time.Duration(0), 0; col < cells && at < span; at += step {
		for col+1 < cells && at >= edge(col+1, cells, span) {
			col++
		}
		if text := []rune("|" + seconds(at)); col+len(text) <= cells {
			copy(row[col:], text)
		}
		if at > span-step {
			break
		}
	}
	return strings.TrimRight(string(row), " ")
}
