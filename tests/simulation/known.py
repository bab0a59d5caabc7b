"""Histories that the product does not stand yet, shrunk, and the reason of each.

The drawn ones keep out of their way (`World.sidestep`), so that they find what is new. When one of
these passes, its test says so, and it goes with the side step that was made for it.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.steps import Step

KNOWN: Final = {
    "feedback of a producer about an event that comes later counts in a rebuild, not live": [
        Step("early_feedback", (49, 0, 0, 0, 0, 0, 0, 0)),
        Step("caught_up", (0, 0, 0, 0, 0, 0, 0, 0)),
        Step("append", (49, 0, 0, 0, 0, 0, 0, 0)),
    ],
    "a worker's newest vectors join an event to the placeholder of one that was forgotten": [
        Step("append", (63638, 46261, 54457, 93, 8152, 63101, 19193, 3503)),
        Step("caught_up", (17776, 31375, 34278, 27516, 11266, 21171, 21528, 19550)),
        Step("forget", (600, 14361, 4124, 49266, 16596, 5026, 34297, 33436)),
        Step("caught_up", (48913, 34844, 14422, 45902, 46696, 19156, 16142, 58429)),
        Step("append", (56578, 30363, 26265, 4667, 63296, 14046, 55627, 2860)),
        Step("forget", (11902, 3935, 7615, 46978, 63776, 61303, 36421, 53184)),
    ],
    "a dead letter of a standby target, tried again after the event was forgotten": [
        Step("append", (63838, 48811, 8060, 55384, 14306, 39361, 10506, 33248)),
        Step("decide", (4421, 7841, 56030, 4301, 2251, 30593, 29337, 7975)),
        Step("rebuild", (15681, 16212, 1465, 39070, 36933, 10050, 51962, 38121)),
        Step("poison", (54623, 42496, 15113, 3763, 33033, 63165, 28689, 56167)),
        Step("caught_up", (29919, 47694, 17502, 32203, 22329, 27497, 58963, 11058)),
        Step("forget", (43241, 26631, 42356, 13159, 54847, 60009, 60628, 51969)),
    ],
}
