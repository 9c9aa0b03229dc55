/* SPDX-License-Identifier: MIT
 *
 * Depth-first search for a packing under a ceiling.
 *
 * If a packing exists, one exists in which every block rests on the ground or on another block. So
 * each unplaced block has a least offset, `low`, the highest top below it in its span, and each
 * section a floor, the least `low` of its unplaced blocks. What lies between the floor and the
 * blocks below it is waste; `slack` is how much more of it a section can bear.
 *
 *   valley   a run of sections of one floor whose neighbours are higher
 *
 * A node picks a section in some valley, of all those the one with the fewest choices: either one
 * of the blocks that can lie there at the floor does, or none ("skip"), and then all blocks of that
 * section lie higher: they must rest on a block that is still to be placed, so their least offsets
 * rise at least to the lowest top such a block can have. Skipping comes last: its subtree may leave
 * out packings that were refuted under the siblings.
 *
 * Parts that no unplaced block joins are solved on their own; where one is impossible the search
 * goes back to the decision that cut it off, over all decisions in other parts. A block that spans
 * its whole part can always be at the top: it is taken out and the ceiling lowered, at no choice.
 * A part that failed is kept in a table by a 64-bit hash of its least offsets and ceiling and fails
 * at once when it comes again, in later runs with the same or a lower ceiling too. (Two different
 * parts of equal hash would make a wrong proof: less than one chance in 10^9 for 10^10 nodes.)
 *
 * Canonical packings and section inference: MiniMalloc (Moffitt, ASPLOS 2023).
 */
#include "memory/plan/search_core.h"

#include "base/vec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE    UINT32_MAX
#define PLACED  INT32_MAX
#define NOWHERE INT32_MAX

#define TABLE_WAYS  4
#define TABLE_FIRST 4096
#define TABLE_MOST  ((size_t)1 << 22)

struct goal { /* a part to be solved */
    uint32_t first, last;
    int32_t ceiling;
    uint32_t parent; /* frame whose decision made it, or NONE */
    uint32_t next;   /* goal to be solved after it, or NONE */
};

struct section_change {
    uint32_t section, ways;
    int32_t floor, slack;
};

struct low_change {
    uint32_t block;
    int32_t low;
};

struct marks {
    uint32_t sections, lows, removed;
};

struct frame {
    uint32_t goal, section;
    uint32_t choice, choice_end; /* into choices; the skip follows them */
    uint32_t goal_count;
    bool skip_left;
    struct marks marks;
    uint64_t key;
};

struct ranked { /* a block while the order is made */
    int64_t keys[4];
    uint32_t block;
};

/* Steps for a section that a block is taken out of, and is put back into. */
#define SECTION_STEPS 12

struct valley {
    uint32_t first, last;
    int32_t floor, wall;
};

struct rpi_searcher {
    const struct rpi_search_instance *in;
    /* blocks */
    int32_t *low;    /* least offset; PLACED once placed */
    int32_t *offset; /* of placed blocks */
    uint32_t *priority;
    uint64_t *cost; /* of choices that are compared */
    struct ranked *order;
    uint64_t *factor; /* of the hash */
    /* sections */
    int32_t *floor, *slack;
    uint32_t *ways;     /* unplaced blocks whose low is the floor */
    uint32_t *live;     /* unplaced blocks: the first so many of the section's members */
    uint32_t *crossing; /* unplaced blocks in this section and the next */
    uint32_t *weight;   /* failures seen here */
    uint32_t *stamp;    /* the last change set that saved it */
    uint32_t *members, *position;
    uint32_t *dirty; /* sections whose floor must be found again */
    uint32_t dirty_count, change_set;
    int32_t smallest; /* size of a block */
    /* undo */
    struct {
        RPI_VEC(struct section_change);
    } section_trail;
    struct {
        RPI_VEC(struct low_change);
    } low_trail;
    uint32_t *removed, removed_count;
    /* search */
    struct {
        RPI_VEC(struct frame);
    } frames;
    struct {
        RPI_VEC(struct goal);
    } goals;
    struct {
        RPI_VEC(uint32_t);
    } choices;
    uint32_t goal_head;
    uint64_t *table; /* rows of TABLE_WAYS keys, newest first; 0: none */
    size_t table_size, table_stored;
    int32_t table_ceiling; /* the keys are of this ceiling or a higher one */
    const struct rpi_search_style *style;
    uint64_t nodes, random;
    uint64_t work;  /* steps of the run that its meter has not counted yet */
    bool no_memory; /* the state is broken, the run ends */
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64, Vigna */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* ---- state: placing and undoing ---- */

static void save_section(struct rpi_searcher *s, uint32_t section)
{
    assert(section < s->in->sections);
    if (s->stamp[section] == s->change_set)
        return;
    s->stamp[section] = s->change_set;
    struct section_change change = {
        .section = section,
        .ways = s->ways[section],
        .floor = s->floor[section],
        .slack = s->slack[section],
    };
    if (!rpi_vec_push(&s->section_trail, change))
        s->no_memory = true;
}

static void save_low(struct rpi_searcher *s, uint32_t block)
{
    assert(block < s->in->blocks);
    struct low_change change = {.block = block, .low = s->low[block]};
    if (!rpi_vec_push(&s->low_trail, change))
        s->no_memory = true;
}

static void lose_way(struct rpi_searcher *s, uint32_t section)
{
    assert(s->no_memory || (s->ways[section] && s->dirty_count < s->in->sections));
    save_section(s, section);
    if (--s->ways[section] == 0)
        s->dirty[s->dirty_count++] = section;
}

static void raise_low(struct rpi_searcher *s, uint32_t block, int32_t low)
{
    assert(s->low[block] < low && low != PLACED);
    int32_t old = s->low[block];
    save_low(s, block);
    s->low[block] = low;
    s->work += s->in->last[block] - s->in->first[block];
    for (uint32_t i = s->in->first[block]; i < s->in->last[block]; i++)
        if (s->floor[i] == old)
            lose_way(s, i);
}

/* Takes a block out of its sections. room: what its sections gain in slack by that. */
static void remove_block(struct rpi_searcher *s, uint32_t block, int32_t room)
{
    assert(s->low[block] != PLACED && s->removed_count < s->in->blocks);
    uint32_t first = s->in->first[block], last = s->in->last[block];
    uint32_t *position = s->position + s->in->slot[block];
    s->work += SECTION_STEPS * (last - first);
    for (uint32_t i = first; i < last; i++) {
        uint32_t *members = s->members + s->in->section_start[i];
        uint32_t at = position[i - first], end = --s->live[i], moved = members[end];
        members[at] = moved;
        s->position[s->in->slot[moved] + (i - s->in->first[moved])] = at;
        members[end] = block;
        position[i - first] = end;
        save_section(s, i);
        s->slack[i] += room;
        if (s->floor[i] == s->low[block])
            lose_way(s, i);
    }
    for (uint32_t i = first; i + 1 < last; i++)
        s->crossing[i]--;
    save_low(s, block);
    s->low[block] = PLACED;
    s->removed[s->removed_count++] = block;
}

static void restore_block(struct rpi_searcher *s, uint32_t block)
{
    assert(s->low[block] == PLACED);
    uint32_t first = s->in->first[block], last = s->in->last[block];
    for (uint32_t i = first; i < last; i++)
        s->live[i]++; /* the block still lies just behind the live ones */
    for (uint32_t i = first; i + 1 < last; i++)
        s->crossing[i]++;
}

/* Floors of the sections that lost their lowest block. False when one has no slack left. */
static bool refresh_dirty(struct rpi_searcher *s)
{
    bool fits = true;
    while (s->dirty_count > 0) {
        uint32_t section = s->dirty[--s->dirty_count];
        const uint32_t *members = s->members + s->in->section_start[section];
        uint32_t live = s->live[section], ways = 0;
        if (live == 0)
            continue;
        s->work += live;
        int32_t floor = PLACED;
        for (uint32_t i = 0; i < live; i++) {
            int32_t low = s->low[members[i]];
            ways = low < floor ? 1 : ways + (low == floor);
            floor = low < floor ? low : floor;
        }
        s->slack[section] -= floor - s->floor[section];
        s->floor[section] = floor;
        s->ways[section] = ways;
        if (s->slack[section] < 0) {
            s->weight[section]++;
            fits = false;
        }
    }
    return fits;
}

static bool place_block(struct rpi_searcher *s, uint32_t block)
{
    assert(s->low[block] != PLACED && !s->dirty_count);
    const struct rpi_search_instance *in = s->in;
    int32_t offset = s->low[block], end = offset + in->size[block];
    uint32_t first = in->first[block];
    s->offset[block] = offset;
    s->work += in->starting[in->last[block]] - in->starting[first];
    remove_block(s, block, in->size[block]);
    const uint32_t *members = s->members + in->section_start[first];
    for (uint32_t i = 0; i < s->live[first]; i++)
        if (s->low[members[i]] < end)
            raise_low(s, members[i], end);
    for (uint32_t b = in->starting[first + 1]; b < in->starting[in->last[block]]; b++)
        if (s->low[b] < end)
            raise_low(s, b, end);
    /* A section that is now empty keeps its floor and has all its slack: nothing to check. */
    return refresh_dirty(s);
}

static void new_change_set(struct rpi_searcher *s)
{
    s->change_set++;
}

static void undo(struct rpi_searcher *s, struct marks marks)
{
    assert(marks.removed <= s->removed_count && marks.lows <= s->low_trail.count);
    assert(marks.sections <= s->section_trail.count);
    s->dirty_count = 0;
    while (s->removed_count > marks.removed)
        restore_block(s, s->removed[--s->removed_count]);
    while (s->low_trail.count > marks.lows) {
        struct low_change change = s->low_trail.data[--s->low_trail.count];
        s->low[change.block] = change.low;
    }
    while (s->section_trail.count > marks.sections) {
        struct section_change change = s->section_trail.data[--s->section_trail.count];
        s->ways[change.section] = change.ways;
        s->floor[change.section] = change.floor;
        s->slack[change.section] = change.slack;
    }
}

/* ---- parts ---- */

static bool push_goal(struct rpi_searcher *s, uint32_t first, uint32_t last, int32_t ceiling,
                      uint32_t parent)
{
    assert(first < last && last <= s->in->sections && ceiling >= 0);
    struct goal goal = {
        .first = first, .last = last, .ceiling = ceiling, .parent = parent, .next = s->goal_head};
    if (!rpi_vec_push(&s->goals, goal)) {
        s->no_memory = true;
        return false;
    }
    s->goal_head = (uint32_t)(s->goals.count - 1);
    return true;
}

/* Takes out the blocks that span the part, lowering its ceiling. False when the rest can't fit. */
static bool lift_spanning(struct rpi_searcher *s, uint32_t first, uint32_t last, int32_t *ceiling,
                          bool *lifted)
{
    assert(first < last && !s->dirty_count);
    const uint32_t *members = s->members + s->in->section_start[first];
    *lifted = false;
    for (uint32_t i = s->live[first]; i-- > 0;) {
        uint32_t block = members[i];
        if (s->in->first[block] != first || s->in->last[block] != last)
            continue;
        *ceiling -= s->in->size[block];
        s->offset[block] = *ceiling;
        remove_block(s, block, 0);
        *lifted = true;
    }
    return refresh_dirty(s);
}

static bool split(struct rpi_searcher *s, uint32_t first, uint32_t last, uint32_t from, uint32_t to,
                  int32_t ceiling, uint32_t parent);

/* A part that hangs together: lifts what spans it and makes goals of what is left. */
static bool add_part(struct rpi_searcher *s, uint32_t first, uint32_t last, int32_t ceiling,
                     uint32_t parent)
{
    bool lifted;
    if (!lift_spanning(s, first, last, &ceiling, &lifted))
        return false;
    return lifted ? split(s, first, last, first, last, ceiling, parent)
                  : push_goal(s, first, last, ceiling, parent);
}

/* Makes goals of the parts of [first, last), which hung together but for what has changed within
 * [from, to). False when one can't be solved. */
static bool split(struct rpi_searcher *s, uint32_t first, uint32_t last, uint32_t from, uint32_t to,
                  int32_t ceiling, uint32_t parent)
{
    for (uint32_t i = from; i < to; i++) {
        bool empty = s->live[i] == 0;
        if (!empty && (i + 1 == last || s->crossing[i] > 0))
            continue;
        uint32_t end = empty ? i : i + 1;
        if (first < end && !add_part(s, first, end, ceiling, parent))
            return false;
        first = i + 1;
    }
    return first == last || add_part(s, first, last, ceiling, parent);
}

static uint64_t goal_key(struct rpi_searcher *s, const struct goal *goal)
{
    assert(goal->first < goal->last);
    s->work += s->in->starting[goal->last] - s->in->starting[goal->first];
    uint64_t key = (uint64_t)goal->ceiling * UINT64_C(0xd6e8feb86659fd93) + goal->first;
    for (uint32_t b = s->in->starting[goal->first]; b < s->in->starting[goal->last]; b++)
        key += s->factor[b] * ((uint64_t)(uint32_t)s->low[b] + 1);
    key ^= key >> 29;
    return key ? key : 1;
}

static uint64_t *table_row(uint64_t *table, size_t size, uint64_t key)
{
    assert(size >= TABLE_WAYS && (size & (size - 1)) == 0);
    return table + (key & (size - TABLE_WAYS));
}

static bool is_known_failure(const struct rpi_searcher *s, uint64_t key)
{
    const uint64_t *row = table_row(s->table, s->table_size, key);
    for (unsigned i = 0; i < TABLE_WAYS; i++)
        if (row[i] == key)
            return true;
    return false;
}

static void insert_key(uint64_t *row, uint64_t key)
{
    assert(key);
    for (unsigned i = TABLE_WAYS - 1; i > 0; i--)
        row[i] = row[i - 1];
    row[0] = key;
}

/* Twice the size, unless there is no memory for that: then old keys are overwritten. */
static void grow_table(struct rpi_searcher *s)
{
    assert(s->table_size < TABLE_MOST);
    size_t size = s->table_size * 2;
    uint64_t *table = rpi_calloc(size, sizeof *table);
    s->table_stored = 0;
    if (!table)
        return;
    for (size_t i = s->table_size; i-- > 0;)
        if (s->table[i])
            insert_key(table_row(table, size, s->table[i]), s->table[i]);
    rpi_free(s->table);
    s->table = table;
    s->table_size = size;
}

static void remember_failure(struct rpi_searcher *s, uint64_t key)
{
    if (s->table_stored++ >= s->table_size && s->table_size < TABLE_MOST)
        grow_table(s);
    insert_key(table_row(s->table, s->table_size, key), key);
}

/* ---- branching ---- */

/* The valley that starts at `first`, if one does; *next is where to look on. */
static bool valley_at(const struct rpi_searcher *s, const struct goal *goal, uint32_t first,
                      struct valley *valley, uint32_t *next)
{
    assert(goal->first <= first && first < goal->last);
    int32_t floor = s->floor[first];
    uint32_t last = first + 1;
    while (last < goal->last && s->floor[last] == floor)
        last++;
    *next = last;
    int32_t left = first > goal->first ? s->floor[first - 1] : NOWHERE;
    int32_t right = last < goal->last ? s->floor[last] : NOWHERE;
    *valley = (struct valley){first, last, floor, left < right ? left : right};
    return left > floor && right > floor;
}

/* What a skip costs at least: up to the wall, or to the top of some block. */
static bool may_skip(const struct rpi_searcher *s, const struct valley *valley, uint32_t section)
{
    int32_t rise = valley->wall - valley->floor;
    return s->slack[section] >= (rise < s->smallest ? rise : s->smallest);
}

struct preference {
    uint32_t section, choices;
    uint64_t weight, slack;
};

/* Fewer choices; of equally many, more failures seen and more blocks to come for less slack. */
static void prefer(const struct rpi_searcher *s, const struct valley *valley, uint32_t section,
                   struct preference *best)
{
    assert(valley->first <= section && section < valley->last && s->slack[section] >= 0);
    uint32_t choices = s->ways[section];
    if (choices > best->choices)
        return;
    choices += may_skip(s, valley, section);
    uint64_t weight = ((uint64_t)s->weight[section] + 1) * s->live[section];
    uint64_t slack = (uint64_t)s->slack[section] + 1;
    if (choices < best->choices ||
        (choices == best->choices && weight * best->slack > best->weight * slack))
        *best = (struct preference){section, choices, weight, slack};
}

/* Any section of any valley would do; a bad one costs time only. */
static uint32_t choose_section(struct rpi_searcher *s, const struct goal *goal)
{
    s->work += goal->last - goal->first;
    struct preference best = {.section = NONE, .choices = UINT32_MAX};
    for (uint32_t first = goal->first, next; first < goal->last && best.choices > 1; first = next) {
        struct valley valley;
        if (!valley_at(s, goal, first, &valley, &next))
            continue;
        for (uint32_t i = valley.first; i < valley.last && best.choices > 1; i++)
            prefer(s, &valley, i, &best);
    }
    assert(best.section != NONE); /* the lowest floor of a part is one of a valley */
    return best.section;
}

/* Blocks that can lie at the floor of the section, best first; of twins only the first. */
static void collect_choices(struct rpi_searcher *s, uint32_t section)
{
    assert(s->live[section] && s->ways[section]);
    const uint32_t *members = s->members + s->in->section_start[section];
    size_t begin = s->choices.count;
    for (uint32_t i = 0; i < s->live[section]; i++) {
        uint32_t block = members[i], twin = s->in->twin[block];
        if (s->low[block] != s->floor[section] || (twin != block && s->low[twin] != PLACED))
            continue;
        size_t at = s->choices.count;
        if (!rpi_vec_push(&s->choices, block)) {
            s->no_memory = true;
            return;
        }
        uint32_t *choices = s->choices.data;
        for (; at > begin && s->priority[choices[at - 1]] > s->priority[block]; at--)
            choices[at] = choices[at - 1];
        choices[at] = block;
    }
}

/* The least offset of the blocks of `section` if none of them lies at the valley's floor. */
static int32_t least_after_skip(const struct rpi_searcher *s, const struct valley *valley,
                                uint32_t section)
{
    assert(valley->first <= section && section < valley->last);
    const struct rpi_search_instance *in = s->in;
    int32_t least = valley->wall;
    const uint32_t *members = s->members + in->section_start[valley->first];
    for (uint32_t i = 0; i < s->live[valley->first]; i++) {
        uint32_t b = members[i];
        if (in->last[b] <= section && s->low[b] + in->size[b] < least)
            least = s->low[b] + in->size[b];
    }
    for (uint32_t b = in->starting[valley->first + 1]; b < in->starting[valley->last]; b++) {
        bool outside = in->last[b] <= section || in->first[b] > section;
        if (outside && s->low[b] != PLACED && s->low[b] + in->size[b] < least)
            least = s->low[b] + in->size[b];
    }
    return least;
}

static bool skip_section(struct rpi_searcher *s, const struct goal *goal, uint32_t section)
{
    assert(goal->first <= section && section < goal->last);
    struct valley valley = {0};
    uint32_t first = section, next;
    while (first > goal->first && s->floor[first - 1] == s->floor[section])
        first--;
    valley_at(s, goal, first, &valley, &next);
    int32_t least = least_after_skip(s, &valley, section);
    if (least == NOWHERE || least - valley.floor > s->slack[section])
        return false;
    const uint32_t *members = s->members + s->in->section_start[section];
    for (uint32_t i = 0; i < s->live[section]; i++)
        if (s->low[members[i]] < least)
            raise_low(s, members[i], least);
    return refresh_dirty(s);
}

/* ---- the search ---- */

/* How much slack the changes since the mark took, the more the less of it is left. */
static uint64_t cost_since(const struct rpi_searcher *s, size_t mark)
{
    assert(mark <= s->section_trail.count);
    uint64_t cost = 0;
    for (size_t i = mark; i < s->section_trail.count; i++) {
        const struct section_change *old = &s->section_trail.data[i];
        int32_t slack = s->slack[old->section];
        if (s->live[old->section] > 0 && old->slack > slack)
            cost += (uint64_t)(old->slack - slack) * 65536 / ((uint64_t)slack + 1);
    }
    return cost;
}

/* Tries each choice for one step: drops those that fail and puts the cheapest first. */
static void look_ahead(struct rpi_searcher *s, struct frame *frame)
{
    assert(frame->choice <= frame->choice_end && frame->choice_end <= s->choices.count);
    uint32_t *choices = s->choices.data, kept = frame->choice;
    for (uint32_t i = frame->choice; i < frame->choice_end; i++) {
        uint32_t block = choices[i], at = kept;
        new_change_set(s);
        bool fits = place_block(s, block);
        uint64_t cost = fits ? cost_since(s, frame->marks.sections) : 0;
        undo(s, frame->marks);
        if (!fits)
            continue;
        s->cost[block] = cost;
        for (; at > frame->choice && s->cost[choices[at - 1]] > cost; at--)
            choices[at] = choices[at - 1];
        choices[at] = block;
        kept++;
    }
    frame->choice_end = kept;
}

/* Opens a frame for the next goal. False when the goal is known to fail. */
static bool open_frame(struct rpi_searcher *s)
{
    assert(s->goal_head < s->goals.count);
    const struct goal *goal = &s->goals.data[s->goal_head];
    s->choices.count = s->frames.count ? s->frames.data[s->frames.count - 1].choice_end : 0;
    struct frame frame = {
        .goal = s->goal_head,
        .section = choose_section(s, goal),
        .choice = (uint32_t)s->choices.count,
        .goal_count = (uint32_t)s->goals.count,
        .marks = {(uint32_t)s->section_trail.count, (uint32_t)s->low_trail.count, s->removed_count},
    };
    collect_choices(s, frame.section);
    frame.choice_end = (uint32_t)s->choices.count;
    frame.skip_left = s->slack[frame.section] > 0;
    if (frame.skip_left || frame.choice_end - frame.choice > 1) {
        frame.key = goal_key(s, goal);
        if (is_known_failure(s, frame.key))
            return false;
        if (s->style->look_ahead)
            look_ahead(s, &frame);
    }
    if (!rpi_vec_push(&s->frames, frame))
        s->no_memory = true;
    s->nodes++;
    return !s->no_memory;
}

static bool take_block(struct rpi_searcher *s, const struct goal *goal, uint32_t block,
                       uint32_t frame)
{
    return place_block(s, block) && split(s, goal->first, goal->last, s->in->first[block],
                                          s->in->last[block], goal->ceiling, frame);
}

static bool take_skip(struct rpi_searcher *s, const struct goal *goal, uint32_t section,
                      uint32_t frame)
{
    return skip_section(s, goal, section) &&
           push_goal(s, goal->first, goal->last, goal->ceiling, frame);
}

/* Takes the next choice of the last frame. False when it has none left. */
static bool advance(struct rpi_searcher *s)
{
    assert(s->frames.count);
    uint32_t index = (uint32_t)s->frames.count - 1;
    struct frame *frame = &s->frames.data[index];
    struct goal goal = s->goals.data[frame->goal];
    while (!s->no_memory && (frame->choice < frame->choice_end || frame->skip_left)) {
        undo(s, frame->marks);
        s->goals.count = frame->goal_count;
        s->goal_head = goal.next;
        new_change_set(s);
        if (frame->choice < frame->choice_end) {
            if (take_block(s, &goal, s->choices.data[frame->choice++], index))
                return true;
        } else {
            frame->skip_left = false;
            if (take_skip(s, &goal, frame->section, index))
                return true;
        }
    }
    return false;
}

/* The part of the last frame has failed: back to the frame that made the part. */
static bool retreat(struct rpi_searcher *s)
{
    assert(s->frames.count);
    const struct frame *frame = &s->frames.data[s->frames.count - 1];
    uint32_t parent = s->goals.data[frame->goal].parent;
    if (frame->key) /* one without a choice is as cheap to try again */
        remember_failure(s, frame->key);
    undo(s, frame->marks);
    s->frames.count = parent == NONE ? 0 : parent + 1;
    return parent != NONE;
}

#define MOVE_STEPS 60

/* Tells the meter what was done since it was told last. */
static void count_work(struct rpi_searcher *s, const struct rpi_search_limits *limits)
{
    rpi_meter_add(limits->meter, s->work);
    s->work = 0;
}

static bool out_of_limits(struct rpi_searcher *s, const struct rpi_search_limits *limits,
                          uint64_t moves)
{
    if (moves >= limits->moves)
        return true;
    if (moves & 15)
        return false;
    count_work(s, limits);
    return (limits->stop && atomic_load_explicit(limits->stop, memory_order_relaxed)) ||
           rpi_meter_past(limits->meter, limits->end);
}

static enum rpi_search_answer search(struct rpi_searcher *s, const struct rpi_search_limits *limits)
{
    bool open =
        true; /* a goal waits to be opened; otherwise the last frame takes its next choice */
    for (uint64_t moves = 0;; moves++) {
        if (out_of_limits(s, limits, moves))
            return RPI_SEARCH_STOPPED;
        s->work += MOVE_STEPS;
        if (open && s->goal_head == NONE)
            return RPI_SEARCH_FOUND;
        if (open && !open_frame(s)) {
            uint32_t parent = s->goals.data[s->goal_head].parent;
            if (s->no_memory)
                return RPI_SEARCH_NO_MEMORY;
            if (parent == NONE)
                return RPI_SEARCH_IMPOSSIBLE;
            s->frames.count = parent + 1;
        }
        open = advance(s);
        if (s->no_memory)
            return RPI_SEARCH_NO_MEMORY;
        if (!open && !retreat(s))
            return RPI_SEARCH_IMPOSSIBLE;
    }
}

/* ---- setting up ---- */

static int64_t key_of(const struct rpi_search_instance *in, uint32_t block, char key)
{
    assert(block < in->blocks);
    int64_t span = (int64_t)in->last[block] - in->first[block], load = 0;
    switch (key) {
    case 'W':
        return span;
    case 'A':
        return span * in->size[block];
    case 'Z':
        return in->size[block];
    default: /* 'T' */
        for (uint32_t i = in->first[block]; i < in->last[block]; i++)
            load = in->load[i] > load ? in->load[i] : load;
        return load;
    }
}

static int compare_ranked(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    for (unsigned i = 0; i < 4; i++)
        if (a->keys[i] != b->keys[i])
            return a->keys[i] > b->keys[i] ? -1 : 1;
    return a->block < b->block ? -1 : a->block > b->block;
}

static void set_priorities(struct rpi_searcher *s)
{
    uint32_t blocks = s->in->blocks;
    struct ranked *order = s->order;
    for (uint32_t b = 0; b < blocks; b++) {
        order[b] = (struct ranked){.block = b};
        for (unsigned i = 0; i < 4 && s->style->keys[i]; i++)
            order[b].keys[i] = key_of(s->in, b, s->style->keys[i]);
    }
    qsort(order, blocks, sizeof *order, compare_ranked);
    s->random = s->style->seed;
    for (uint32_t i = 0; s->style->seed && i < blocks; i++) {
        uint32_t reach = blocks / 8 + 2, at = i + (uint32_t)(next_random(&s->random) % reach);
        if (at >= blocks)
            continue;
        struct ranked other = order[i];
        order[i] = order[at];
        order[at] = other;
    }
    for (uint32_t i = 0; i < blocks; i++)
        s->priority[order[i].block] = i;
}

/* Everything unplaced under the ceiling. False when a section holds more than that. */
static bool reset(struct rpi_searcher *s, int32_t ceiling)
{
    const struct rpi_search_instance *in = s->in;
    memset(s->low, 0, in->blocks * sizeof *s->low);
    memset(s->crossing, 0, in->sections * sizeof *s->crossing);
    bool fits = true;
    for (uint32_t i = 0; i < in->sections; i++) {
        s->live[i] = s->ways[i] = in->section_start[i + 1] - in->section_start[i];
        s->floor[i] = 0;
        s->slack[i] = ceiling - in->load[i];
        fits = fits && s->slack[i] >= 0;
        for (uint32_t k = 0; k < s->live[i]; k++) {
            uint32_t block = in->members[in->section_start[i] + k];
            s->members[in->section_start[i] + k] = block;
            s->position[in->slot[block] + (i - in->first[block])] = k;
            s->crossing[i] += in->last[block] > i + 1;
        }
    }
    s->section_trail.count = s->low_trail.count = s->removed_count = 0;
    s->frames.count = s->goals.count = s->choices.count = s->dirty_count = 0;
    s->goal_head = NONE;
    s->no_memory = false;
    return fits;
}

/* The packing found, every block let fall onto what is below it. Uses up the state. */
static void settle(struct rpi_searcher *s, int32_t *out_offsets)
{
    assert(s->goal_head == NONE);
    const struct rpi_search_instance *in = s->in;
    for (uint32_t b = 0; b < in->blocks; b++)
        s->order[b] = (struct ranked){.keys = {-(int64_t)s->offset[b]}, .block = b};
    qsort(s->order, in->blocks, sizeof *s->order, compare_ranked);
    memset(s->floor, 0, in->sections * sizeof *s->floor);
    for (uint32_t k = 0; k < in->blocks; k++) {
        uint32_t block = s->order[k].block;
        int32_t offset = 0;
        for (uint32_t i = in->first[block]; i < in->last[block]; i++)
            offset = s->floor[i] > offset ? s->floor[i] : offset;
        for (uint32_t i = in->first[block]; i < in->last[block]; i++)
            s->floor[i] = offset + in->size[block];
        out_offsets[block] = offset;
    }
}

enum rpi_search_answer rpi_searcher_run(struct rpi_searcher *s, int32_t ceiling,
                                        const struct rpi_search_style *style,
                                        const struct rpi_search_limits *limits,
                                        int32_t *out_offsets)
{
    assert(style->keys && limits->meter);
    s->style = style;
    set_priorities(s);
    if (ceiling > s->table_ceiling)
        memset(s->table, 0, s->table_size * sizeof *s->table);
    s->table_ceiling = ceiling;
    if (!reset(s, ceiling))
        return RPI_SEARCH_IMPOSSIBLE;
    new_change_set(s);
    if (!split(s, 0, s->in->sections, 0, s->in->sections, ceiling, NONE))
        return s->no_memory ? RPI_SEARCH_NO_MEMORY : RPI_SEARCH_IMPOSSIBLE;
    enum rpi_search_answer answer = search(s, limits);
    count_work(s, limits);
    if (answer == RPI_SEARCH_FOUND)
        settle(s, out_offsets);
    return answer;
}

static bool allocate(struct rpi_searcher *s)
{
    const struct rpi_search_instance *in = s->in;
    uint32_t blocks = in->blocks, sections = in->sections;
    size_t cells = in->slot[blocks];
    s->table_size = TABLE_FIRST;
    s->low = rpi_calloc(blocks, sizeof *s->low);
    s->offset = rpi_calloc(blocks, sizeof *s->offset);
    s->priority = rpi_calloc(blocks, sizeof *s->priority);
    s->cost = rpi_calloc(blocks, sizeof *s->cost);
    s->order = rpi_calloc(blocks, sizeof *s->order);
    s->factor = rpi_calloc(blocks, sizeof *s->factor);
    s->floor = rpi_calloc(sections, sizeof *s->floor);
    s->slack = rpi_calloc(sections, sizeof *s->slack);
    s->ways = rpi_calloc(sections, sizeof *s->ways);
    s->live = rpi_calloc(sections, sizeof *s->live);
    s->crossing = rpi_calloc(sections, sizeof *s->crossing);
    s->weight = rpi_calloc(sections, sizeof *s->weight);
    s->stamp = rpi_calloc(sections, sizeof *s->stamp);
    s->dirty = rpi_calloc(sections, sizeof *s->dirty);
    s->members = rpi_calloc(cells, sizeof *s->members);
    s->position = rpi_calloc(cells, sizeof *s->position);
    s->removed = rpi_calloc(blocks, sizeof *s->removed);
    s->table = rpi_calloc(s->table_size, sizeof *s->table);
    return s->low && s->offset && s->priority && s->cost && s->order && s->factor && s->floor &&
           s->slack && s->ways && s->live && s->crossing && s->weight && s->stamp && s->dirty &&
           s->members && s->position && s->removed && s->table;
}

rp_status rpi_searcher_create(const struct rpi_search_instance *instance,
                              struct rpi_searcher **out_searcher, struct rp_error *err)
{
    struct rpi_searcher *s = rpi_calloc(1, sizeof *s);
    if (!s)
        return rpi_error_host_memory(err, "plan search", sizeof *s);
    s->in = instance;
    if (!allocate(s)) {
        rpi_searcher_destroy(s);
        return rpi_error_host_memory(err, "plan search",
                                     (size_t)instance->blocks * sizeof *s->order);
    }
    s->table_ceiling = INT32_MAX;
    s->smallest = INT32_MAX;
    uint64_t state = 1;
    for (uint32_t b = 0; b < instance->blocks; b++) {
        s->factor[b] = next_random(&state) | 1;
        if (instance->size[b] < s->smallest)
            s->smallest = instance->size[b];
    }
    *out_searcher = s;
    return RP_OK;
}

void rpi_searcher_destroy(struct rpi_searcher *s)
{
    if (!s)
        return;
    void *owned[] = {s->low,     s->offset,   s->priority, s->factor, s->floor, s->slack,
                     s->ways,    s->live,     s->crossing, s->weight, s->stamp, s->dirty,
                     s->members, s->position, s->removed,  s->table,  s->order, s->cost};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        rpi_free(owned[i]);
    rpi_vec_finish(&s->section_trail);
    rpi_vec_finish(&s->low_trail);
    rpi_vec_finish(&s->frames);
    rpi_vec_finish(&s->goals);
    rpi_vec_finish(&s->choices);
    rpi_free(s);
}

uint64_t rpi_searcher_nodes(const struct rpi_searcher *s)
{
    return s->nodes;
}
