"""What counts as a model error. A goal's margin is positive while the model is right and negative once it errs."""

from rlab.core.goals.base import Goal as Goal
from rlab.core.goals.base import RowGoal as RowGoal
from rlab.core.goals.base import check_kinds as check_kinds
from rlab.core.goals.base import refuse_other_labels as refuse_other_labels
from rlab.core.goals.boxes import Appear as Appear
from rlab.core.goals.boxes import Misclassify as Misclassify
from rlab.core.goals.boxes import Move as Move
from rlab.core.goals.boxes import Precision as Precision
from rlab.core.goals.boxes import Vanish as Vanish
from rlab.core.goals.classes import Below as Below
from rlab.core.goals.classes import MultiLabel as MultiLabel
from rlab.core.goals.classes import Targeted as Targeted
from rlab.core.goals.classes import Untargeted as Untargeted
from rlab.core.goals.maps import Grow as Grow
from rlab.core.goals.maps import Lose as Lose
from rlab.core.goals.maps import MapIoU as MapIoU
from rlab.core.goals.maps import Pixels as Pixels
from rlab.core.goals.numbers import Above as Above
from rlab.core.goals.numbers import Deviate as Deviate
from rlab.core.goals.numbers import Under as Under
from rlab.core.goals.parse import FORMS as FORMS
from rlab.core.goals.parse import USUAL as USUAL
from rlab.core.goals.parse import parse_goal as parse_goal
