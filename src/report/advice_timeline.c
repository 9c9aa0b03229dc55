/* SPDX-License-Identifier: MIT
 *
 * The timeline of one iteration for the page: its events as data, and the
 * script that draws them on a canvas. Rows are the streams with their work, and
 * for each thread that made calls the calls, the operators by nesting, and the
 * Python functions by nesting. No more than MOST_EVENTS are written: the
 * shortest frames are left out first, work and calls never.
 */
#include "report/advice_writer.h"

#include <stdio.h>
#include <string.h>

enum { MOST_EVENTS = 20000, MOST_LEVELS = 6, MOST_THREADS = 8, DRAWN_NAME = 90 };

/* The script has the colours in this order. */
enum colour {
#define X(name, colour, what) name,
#include "report/advice_colours.def"
#undef X
};

struct timeline {
    struct rpi_writer *w;
    const struct rp_advice *a;
    uint64_t from, to;        /* of what is drawn */
    struct rpi_idmap numbers; /* of names, in the order of `names` */
    struct {
        RPI_VEC(uint32_t);
    } names;
    size_t rows, in_row, events;
    uint64_t least_ns; /* shorter frames are left out */
    bool failed;
};

static double us(const struct timeline *t, uint64_t time)
{
    return (double)(int64_t)(time - t->from) / 1000;
}

static uint32_t number_of(struct timeline *t, uint32_t name)
{
    uint32_t number = rpi_idmap_get(&t->numbers, name);
    if (number != RPI_ABSENT)
        return number;
    number = (uint32_t)t->names.count;
    if (!rpi_vec_push(&t->names, name) || !rpi_idmap_set(&t->numbers, name, number))
        t->failed = true;
    return number;
}

static void begin_row(struct timeline *t, const char *label)
{
    rpi_write(t->w, "%s\n{l:", t->rows++ ? "," : "");
    rpi_write_json(t->w, label);
    rpi_write(t->w, ",e:[");
    t->in_row = 0;
}

static void end_row(struct timeline *t)
{
    rpi_write(t->w, "]}");
}

static void put_event(struct timeline *t, const struct rpi_event *event, enum colour colour)
{
    rpi_write(t->w, "%s%.3f,%.3f,%u,%d", t->in_row++ ? "," : "", us(t, event->start),
              (double)event->span / 1000, number_of(t, event->name), (int)colour);
    t->events++;
}

/* ---- Rows ---------------------------------------------------------------------------------- */

static void put_stream(struct timeline *t, uint32_t lane)
{
    const struct rpi_iteration *typical = rpi_typical(t->a);
    struct rpi_writer label = {0};
    rpi_write(&label, "stream %lld", (long long)t->a->trace.streams.data[lane].stream);
    begin_row(t, label.failed ? "" : label.data);
    rpi_vec_finish(&label);
    for (uint32_t i = 0; i < typical->work_count; i++) {
        const struct rpi_event *work = &t->a->trace.work.data[t->a->order[typical->first_work + i]];
        if (work->lane == lane)
            put_event(t, work,
                      work->kind == RPI_WORK_COPY   ? COPY
                      : work->kind == RPI_WORK_FILL ? FILL
                                                    : KERNEL);
    }
    end_row(t);
}

/* The first event of a lane at or after `time`. */
static size_t first_of(const struct rpi_events *events, uint32_t lane, uint64_t time)
{
    size_t low = 0, high = events->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct rpi_event *event = &events->data[middle];
        if (event->lane < lane || (event->lane == lane && event->start < time))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool in_iteration(const struct timeline *t, const struct rpi_event *event, uint32_t lane)
{
    return event->lane == lane && event->start < rpi_typical(t->a)->end;
}

static void put_calls(struct timeline *t, uint32_t lane, const char *label)
{
    const struct rpi_events *calls = &t->a->trace.calls;
    begin_row(t, label);
    for (size_t i = first_of(calls, lane, rpi_typical(t->a)->start);
         i < calls->count && in_iteration(t, &calls->data[i], lane); i++) {
        const char *name = rpi_name(&t->a->trace, calls->data[i].name);
        put_event(t, &calls->data[i], strstr(name, "Synchronize") ? WAIT : CALL);
    }
    end_row(t);
}

/* One level of nesting of one kind of frame; whether there was any. A level is
 * found by counting the frames of the kind that are still open. */
static bool put_level(struct timeline *t, uint32_t lane, enum rpi_event_kind kind, size_t level,
                      const char *label)
{
    const struct rpi_events *frames = &t->a->trace.frames;
    uint64_t open[MOST_LEVELS + 1];
    size_t depth = 0;
    bool any = false;
    for (size_t i = first_of(frames, lane, rpi_typical(t->a)->start);
         i < frames->count && in_iteration(t, &frames->data[i], lane); i++) {
        const struct rpi_event *frame = &frames->data[i];
        if (frame->kind != kind)
            continue;
        while (depth && open[depth - 1] <= frame->start)
            depth--;
        if (depth == level && frame->span >= t->least_ns) {
            if (!any)
                begin_row(t, label);
            any = true;
            put_event(t, frame, kind == RPI_FRAME_OP ? OP : PYTHON);
        }
        if (depth <= MOST_LEVELS - 1)
            open[depth++] = rpi_event_end(frame);
    }
    if (any)
        end_row(t);
    return any;
}

static bool calls_in(const struct timeline *t, uint32_t lane)
{
    const struct rpi_events *calls = &t->a->trace.calls;
    size_t first = first_of(calls, lane, rpi_typical(t->a)->start);
    return first < calls->count && in_iteration(t, &calls->data[first], lane);
}

static void put_threads(struct timeline *t)
{
    size_t shown = 0;
    for (uint32_t lane = 0; lane < t->a->trace.threads.count && shown < MOST_THREADS; lane++) {
        if (!calls_in(t, lane))
            continue;
        shown++;
        char label[32];
        snprintf(label, sizeof label, shown == 1 ? "CUDA calls" : "thread %zu: calls", shown);
        put_calls(t, lane, label);
        for (size_t level = 0; level < MOST_LEVELS; level++)
            if (!put_level(t, lane, RPI_FRAME_OP, level, level ? "" : "operators"))
                break;
        for (size_t level = 0; level < MOST_LEVELS; level++)
            if (!put_level(t, lane, RPI_FRAME_PYTHON, level, level ? "" : "Python"))
                break;
    }
}

/* ---- The whole ----------------------------------------------------------------------------- */

/* How short a frame may be, so that what is drawn stays within MOST_EVENTS. */
static uint64_t choose_least(const struct rp_advice *a)
{
    const struct rpi_iteration *i = rpi_typical(a);
    size_t frames = i->ops + i->python_frames;
    return frames <= MOST_EVENTS ? 0 : (i->end - i->start) * frames / MOST_EVENTS / 4000;
}

static void choose_range(struct timeline *t, uint64_t *view_from, uint64_t *view_to)
{
    const struct rpi_iteration *i = rpi_typical(t->a);
    uint64_t first = UINT64_MAX, last = 0;
    for (uint32_t k = 0; k < i->work_count; k++) {
        const struct rpi_event *work = &t->a->trace.work.data[t->a->order[i->first_work + k]];
        first = work->start < first ? work->start : first;
        last = rpi_event_end(work) > last ? rpi_event_end(work) : last;
    }
    t->from = first < i->start ? first : i->start;
    t->to = last > i->end ? last : i->end;
    *view_from = t->from;
    *view_to = t->to;
    if (first > i->end) { /* the device is an iteration or more behind */
        *view_from = first;
        *view_to = last;
    }
}

/* Quoted for the script; '<' is written as an escape, so that no name ends the
 * script element. */
static void put_name(struct timeline *t, const char *name)
{
    struct rpi_writer quoted = {0};
    rpi_write_json(&quoted, name);
    t->failed |= quoted.failed;
    for (size_t i = 0; !quoted.failed && i < quoted.count; i++)
        if (quoted.data[i] == '<')
            rpi_write(t->w, "\\u003c");
        else
            rpi_write(t->w, "%c", quoted.data[i]);
    rpi_vec_finish(&quoted);
}

static void put_names(struct timeline *t)
{
    char name[DRAWN_NAME + 1];
    rpi_write(t->w, "],\nnames:[");
    for (size_t i = 0; i < t->names.count; i++) {
        rpi_write(t->w, "%s", i ? ",\n" : "");
        put_name(t, rpi_short_name(rpi_name(&t->a->trace, t->names.data[i]), name, DRAWN_NAME));
    }
    rpi_write(t->w, "],\ncuts:[");
    for (size_t i = 0; i < t->a->cuts.count; i++)
        rpi_write(t->w, "%s%.3f", i ? "," : "", us(t, t->a->cuts.data[i]));
}

static const char *const script[] = {
    "const "
    "C=document.getElementById('timeline'),G=C.getContext('2d'),tip=document."
    "getElementById("
    "'tip');",
    "const "
    "H=17,L=96,TOP=20,COL=["
#define X(name, colour, what) "'" colour "',"
#include "report/advice_colours.def"
#undef X
    "];",
    "let v0=T.view[0],v1=T.view[1],drag=null;",
    "const "
    "X=t=>L+(t-v0)/(v1-v0)*(C.clientWidth-L),U=x=>v0+(x-L)/"
    "(C.clientWidth-L)*(v1-v0);",
    "function fmt(u){return u>=1000?(u/1000).toFixed(u>=1e5?0:2)+' "
    "ms':u.toFixed(u<10?2:1)+' us';}",
    "function grid(w,h){const "
    "n=Math.max(2,Math.floor((w-L)/110)),raw=(v1-v0)/n;",
    " const p=Math.pow(10,Math.floor(Math.log10(raw)));",
    " const s=[1,2,5,10].map(m=>m*p).find(x=>x>=raw);",
    " G.textAlign='center';for(let t=Math.ceil(v0/s)*s;t<=v1;t+=s){const "
    "x=X(t);",
    "  G.fillStyle='#e6e9ec';G.fillRect(x,TOP-4,1,h);G.fillStyle='#5b6670';",
    "  "
    "G.fillText(fmt(t),Math.min(Math.max(x,L+16),w-28),11);}G.textAlign='left';"
    "}",
    "function row(r,y,w){const "
    "e=r.e;G.fillStyle='#5b6670';G.fillText(r.l,4,y+12);",
    " let last=-1;for(let i=0;i<e.length;i+=4){const "
    "a=X(e[i]),b=X(e[i]+e[i+1]);",
    "  if(b<L||a>w)continue;const "
    "x=Math.max(a,L),d=Math.max(Math.min(b,w)-x,0.6);",
    "  if(d<1&&x-last<0.6)continue;last=x+d;",
    "  G.fillStyle=COL[e[i+3]];G.fillRect(x,y+1,d>3?d-0.5:d,H-3);",
    "  "
    "if(d>44){G.fillStyle='#fff';G.save();G.beginPath();G.rect(x,y,d-3,H);G."
    "clip();",
    "   G.fillText(T.names[e[i+2]],x+3,y+12);G.restore();}}}",
    "function draw(){const "
    "w=C.clientWidth,h=TOP+T.rows.length*H+6,r=window.devicePixelRatio||1;",
    " C.style.height=h+'px';C.width=w*r;C.height=h*r;G.setTransform(r,0,0,r,0,"
    "0);",
    " G.font='11px system-ui,sans-serif';G.clearRect(0,0,w,h);grid(w,h);",
    " T.rows.forEach((e,i)=>row(e,TOP+i*H,w));G.fillStyle='#1f2830';",
    " for(const t of T.cuts){const "
    "x=X(t);if(x>=L&&x<=w){G.fillRect(x,TOP-6,1,h);",
    "  "
    "G.beginPath();G.moveTo(x-4,TOP-7);G.lineTo(x+5,TOP-7);G.lineTo(x+0.5,TOP);"
    "G.fill();}}}",
    "function zoom(f,at){const s=Math.min(Math.max((v1-v0)*f,0.5),T.to*1.02),",
    " k=(at-v0)/(v1-v0);v0=at-k*s;v1=v0+s;clampView();draw();}",
    "function clampView(){const "
    "s=v1-v0,m=T.to*0.01;if(v0<-m)v0=-m;if(v0>T.to)v0=T.to-s;v1=v0+s;}",
    "function hit(x,y){const r=T.rows[Math.floor((y-TOP)/H)];if(!r||x<L)return "
    "null;",
    " const t=U(x),s=(v1-v0)/(C.clientWidth-L);let best=null;",
    " for(let "
    "i=0;i<r.e.length;i+=4)if(r.e[i]-s<=t&&t<=r.e[i]+r.e[i+1]+s)best=i;",
    " return best===null?null:[r.e,best];}",
    "C.onmousemove=m=>{if(drag){const "
    "d=(m.offsetX-drag.x)/(C.clientWidth-L)*(v1-v0);",
    "  const s=v1-v0;v0=drag.v-d;v1=v0+s;clampView();draw();return;}",
    " const "
    "h=hit(m.offsetX,m.offsetY);if(!h){tip.hidden=true;return;}const[e,i]=h;",
    " tip.textContent=T.names[e[i+2]]+'  \\u2014  '+fmt(e[i+1])+', at "
    "'+fmt(e[i]);",
    " tip.hidden=false;tip.style.left=Math.min(m.pageX+12,window.innerWidth-"
    "tip.offsetWidth-12)",
    "  +'px';tip.style.top=(m.pageY+14)+'px';};",
    "C.onmouseleave=()=>{tip.hidden=true;};C.onmousedown=m=>{drag={x:m.offsetX,"
    "v:v0};};",
    "window.onmouseup=()=>{drag=null;};window.onresize=draw;",
    "C.addEventListener('wheel',m=>{if(!m.ctrlKey&&!m.shiftKey)return;m."
    "preventDefault();",
    " zoom(m.deltaY+m.deltaX<0?0.8:1.25,U(m.offsetX));},{passive:false});",
    "document.getElementById('in').onclick=()=>zoom(0.5,(v0+v1)/2);",
    "document.getElementById('out').onclick=()=>zoom(2,(v0+v1)/2);",
    "document.getElementById('all').onclick=()=>{v0=0;v1=T.to;draw();};",
    "draw();",
};

void rpi_advice_write_timeline(struct rpi_writer *w, const struct rp_advice *a)
{
    struct timeline t = {.w = w, .a = a, .least_ns = choose_least(a)};
    uint64_t view_from, view_to;
    choose_range(&t, &view_from, &view_to);
    rpi_write(w, "<script>\nconst T={to:%.3f,view:[%.3f,%.3f],rows:[", us(&t, t.to),
              us(&t, view_from), us(&t, view_to));
    for (uint32_t lane = 0; lane < a->stream_use.count; lane++)
        if (a->stream_use.data[lane].work)
            put_stream(&t, lane);
    put_threads(&t);
    put_names(&t);
    rpi_write(w, "]};\n");
    for (size_t i = 0; i < sizeof script / sizeof *script; i++)
        rpi_write(w, "%s\n", script[i]);
    rpi_write(w, "</script>\n");
    w->failed |= t.failed;
    rpi_idmap_finish(&t.numbers);
    rpi_vec_finish(&t.names);
}
