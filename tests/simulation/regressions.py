"""Histories that once ended in another graph than that of their ledger, shrunk; and why."""

from __future__ import annotations

from typing import Final

from tests.simulation.steps import Step

REGRESSIONS: Final = {
    "feedback of a producer about an event that comes later counted in a rebuild, not live": [
        Step("early_feedback", (49, 0, 0, 0, 0, 0, 0, 0)),
        Step("caught_up", (0, 0, 0, 0, 0, 0, 0, 0)),
        Step("append", (49, 0, 0, 0, 0, 0, 0, 0)),
    ],
    "a worker's newest vectors joined an event to the placeholder of one that was forgotten": [
        Step("append", (63638, 46261, 54457, 93, 8152, 63101, 19193, 3503)),
        Step("caught_up", (17776, 31375, 34278, 27516, 11266, 21171, 21528, 19550)),
        Step("forget", (600, 14361, 4124, 49266, 16596, 5026, 34297, 33436)),
        Step("caught_up", (48913, 34844, 14422, 45902, 46696, 19156, 16142, 58429)),
        Step("append", (56578, 30363, 26265, 4667, 63296, 14046, 55627, 2860)),
        Step("forget", (11902, 3935, 7615, 46978, 63776, 61303, 36421, 53184)),
    ],
    "a dead letter, tried again after its event was forgotten, left nothing behind": [
        Step("append", (63838, 48811, 8060, 55384, 14306, 39361, 10506, 33248)),
        Step("decide", (4421, 7841, 56030, 4301, 2251, 30593, 29337, 7975)),
        Step("rebuild", (15681, 16212, 1465, 39070, 36933, 10050, 51962, 38121)),
        Step("poison", (54623, 42496, 15113, 3763, 33033, 63165, 28689, 56167)),
        Step("caught_up", (29919, 47694, 17502, 32203, 22329, 27497, 58963, 11058)),
        Step("forget", (43241, 26631, 42356, 13159, 54847, 60009, 60628, 51969)),
    ],
    "when a community came back was told by the last decision of a batch, not by the first": [
        Step("decide", (6370, 59781, 40007, 29482, 54642, 33038, 40009, 27176)),
        Step("append", (28905, 12353, 18785, 49117, 52010, 15203, 213, 12652)),
        Step("caught_up", (61463, 37004, 9742, 22885, 52109, 9655, 22583, 21840)),
        Step("decide", (28872, 17892, 53260, 27805, 46595, 56999, 15940, 32318)),
        Step("decide", (50944, 29706, 63814, 14196, 2193, 53834, 30241, 16043)),
    ],
    "a tombstone missed what its event was parted from, if that was recalled in the same batch": [
        Step("append", (39163, 59516, 21647, 49397, 41384, 49832, 20573, 58798)),
        Step("append", (32470, 61191, 23935, 16910, 38758, 45284, 43009, 59981)),
        Step("forget", (3912, 58524, 8024, 40314, 40205, 59150, 13171, 922)),
        Step("forget", (56040, 31925, 59115, 47770, 56960, 14592, 25390, 64943)),
        Step("decide", (37826, 40362, 18964, 31587, 48293, 9671, 45799, 64381)),
        Step("decide", (20878, 6456, 54480, 8081, 39914, 17322, 14265, 40040)),
        Step("race", (60190, 2344, 24859, 31894, 14583, 6089, 63718, 26307)),
        Step("decide", (41246, 5095, 22463, 51176, 5643, 28783, 58456, 62967)),
    ],
}
