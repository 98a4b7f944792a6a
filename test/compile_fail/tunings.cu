// SPDX-License-Identifier: MIT
// promises: attile::portable::Tuning: threads must be a multiple of 32 up to 1024
// promises: attile::portable::Tuning: blocks_per_sm is at least 1
// promises: attile::sm80::Tuning: warps are 1 to 32, or 0, which leaves them to the library
// promises: attile::sm80::Tuning: warps_n, the warps of a row, is at least 1
// promises: attile::sm80::Tuning: blocks_per_sm is at least 1, or 0, which leaves it to the library
// promises: attile::sm80::BackwardTuning: warps are 1 to 32, or 0, which leaves them to the library
// promises: attile::sm80::BackwardTuning: warps_n and dq_warps_n, the warps of a row, are at least
// promises: attile::sm80::BackwardTuning: blocks_per_sm is at least 1
// promises: attile::sm80::BackwardTuning: stages is 1 or 2
// promises: attile::sm80::DecodeTuning: warps are 1 to 32
// promises: attile::sm80::DecodeTuning: warps must be a multiple of key_groups
// promises: attile::sm80::DecodeTuning: groups of several warps have a named barrier each
// promises: attile::sm80::DecodeTuning: stages is at least 1
// promises: attile::sm80::DecodeTuning: blocks_per_sm is at least 1
// promises: attile::sm80::DecodeTuning: q_stages is 1 or 2
// promises: attile::sm90::Tuning: at least 2 stages
// promises: attile::sm90::BackwardTuning: at least 2 stages
// promises: attile::sm90::BackwardTuning: tiles of P are 0 or more
#include <attile/attile.cuh>

namespace portable = attile::portable;
namespace sm80 = attile::sm80;
namespace sm90 = attile::sm90;

portable::Tuning<portable::TuningValues{.threads = 48}> half_a_warp;
portable::Tuning<portable::TuningValues{.blocks_per_sm = 0}> portable_blocks;
sm80::Tuning<sm80::TuningValues{.warps = 33}> forward_warps;
sm80::Tuning<sm80::TuningValues{.warps_n = 0}> forward_warps_n;
sm80::Tuning<sm80::TuningValues{.blocks_per_sm = -1}> forward_blocks;
sm80::BackwardTuning<sm80::BackwardTuningValues{.warps = 33}> backward_warps;
sm80::BackwardTuning<sm80::BackwardTuningValues{.dq_warps_n = -1}> backward_warps_n;
sm80::BackwardTuning<sm80::BackwardTuningValues{.blocks_per_sm = 0}> backward_blocks;
sm80::BackwardTuning<sm80::BackwardTuningValues{.stages = 3}> backward_stages;
sm80::DecodeTuning<sm80::DecodeTuningValues{.warps = 33}> decode_warps;
sm80::DecodeTuning<sm80::DecodeTuningValues{.warps = 4, .key_groups = 3}> key_groups;
sm80::DecodeTuning<sm80::DecodeTuningValues{.warps = 32, .key_groups = 16}> barriers;
sm80::DecodeTuning<sm80::DecodeTuningValues{.stages = 0}> decode_stages;
sm80::DecodeTuning<sm80::DecodeTuningValues{.blocks_per_sm = 0}> decode_blocks;
sm80::DecodeTuning<sm80::DecodeTuningValues{.q_stages = 3}> q_stages;
sm90::Tuning<sm90::TuningValues{.stages = 1}> sm90_stages;
sm90::BackwardTuning<sm90::BackwardTuningValues{.stages = 1}> sm90_backward_stages;
sm90::BackwardTuning<sm90::BackwardTuningValues{.p_steps = -1}> p_steps;
