// The best k of a row that the registers of a cluster hold: blocks list what may be among them and send it to all
// others; each then has the lists of all, and ranks and writes its share of the answer.
#pragma once
#include "again.cuh"

// Call `answers.put(rank, key, column)` for the best k of a row, at least one, each by some thread of the cluster; its
// lines were asked for.
template <class Blocks, class Answers>
__device__ __forceinline__ void select_gathered(const Row& row, Holding<Blocks>& holding, unsigned k, bool smallest,
                                                Room room, const Answers& answers) {
  const Aim aim = aim_of<Blocks>(k, row);
  if (threadIdx.x < 3) room.exchange.found[threadIdx.x] = room.exchange.lines[threadIdx.x] = 0;
  if (threadIdx.x < 2) room.list.counters->crossing[threadIdx.x] = 0;  // a share may have no ranks
  if (threadIdx.x == 0) room.list.counters->count = 0;
  clear_intervals(room.list);
  clear_entries(room);
  Blocks::arrive();  // waited for before anything is sent
  find_best(row, holding, smallest);
  const Guess guess = own_cut(holding, room.exchange, room.told.ranks, aim);
  Cut cut = {max(guess.cut, Key(1)), 0};
  Key top = guess.top;
  const unsigned listed = list_lines(holding, room, &room.exchange.lines[0], cut.key);
  unsigned* found = &room.exchange.found[0];
  if (listed <= LISTED) list_elements<Blocks>(row, room, listed, found, cut.key);
  __syncthreads();
  unsigned own = listed <= LISTED ? *found : ~0u;
  if (own > SEGMENT<Blocks>) {
    top = extent_of(row, lines_again<Blocks>(row), room.exchange).most;
    own = list_fitting<Blocks>(row, k, room, &room.exchange.lines[1], top, max(listed, *found), cut);
  }
  Blocks::wait();
  send_entries<Blocks>(room, own);
  tell_cut<Blocks>(room, cut, top);
  Blocks::sync();
  cut = highest_cut<Blocks>(room), top = largest_of_lanes(room.told.tops[lane_of() % Blocks::COUNT]);
  const Share share = share_of<Blocks>(k);
  const auto put = [&](unsigned rank, Key key, unsigned column) {
    if (rank >= share.first && rank < share.end) answers.put(rank, key, column);
  };
  const Even even = even_between(top, cut.key, cut.place && top == cut.key ? ~cut.place + 1 : row.cols, row.order);
  Key keys[ITEMS];
  unsigned intervals[ITEMS];
  read_keys(room, cut, keys);
  Even of_keys = even;
  of_keys.scale = 0;
  if (even.scale > 0) count_entries(room, keys, cut.key, even, intervals);
  else count_entries(room, keys, cut.key, of_keys, intervals);
  __syncthreads();
  Places places = add_up(room.list, share);
  if (places.total >= k && share.first == share.end) return;
  if (places.total >= k && !places.crowd) return rank_share(room, keys, intervals, share, places, even, put);
  if (places.total < k) {
    cut = list_again<Blocks>(row, k, room);
    read_keys(room, cut, keys);
  }
  clear_intervals(room.list);
  const AmidTies amid = crowded_intervals(room, keys, cut, row);
  count_entries(room, keys, cut.key, amid, intervals);
  __syncthreads();
  places = add_up(room.list, share, MOST_AMID_TIES);
  if (places.total >= k && share.first == share.end) return;
  if (places.total >= k && !places.crowd) return rank_share(room, keys, intervals, share, places, amid, put);
  const bool few = places.total < k;
  const unsigned count = few ? list_by_turns<Blocks>(row, k, room, answers) : bring_together(room, keys, cut);
  if (count) rank_list(room.list, count, min(count, share.end), row.cols, row.order, put);
}
